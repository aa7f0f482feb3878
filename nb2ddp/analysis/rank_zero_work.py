"""Find the work of rank 0 alone before training ends: writing, starting processes, generating.

Two ranks that write one file corrupt it; text that is generated to be read, or to be trained on, is needed
once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

import libcst as cst
from libcst import matchers as m

from nb2ddp import libraries
from nb2ddp.analysis import files, modules
from nb2ddp.analysis.common_paths import called_by_all, changes_state
from nb2ddp.analysis.facts import Facts, asked_once
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement, last_name
from nb2ddp.source.shell_text import is_install

WRITES = "only rank 0 writes"


@asked_once
def generation(facts: Facts) -> tuple[frozenset[Statement], dict[Statement, list[str]]]:
    """Return the statements that rank 0 runs alone, and those whose names it broadcasts to all ranks.

    What changes what the ranks train with, each rank generates: it takes no longer than on one.
    """
    last = facts.last_collective
    if last is None:
        return frozenset(), {}

    def makes_text(call: cst.Call) -> bool:
        given = (a for a in call.args if not isinstance(facts.value(a.value), cst.BaseNumber))
        generates = facts.method(call) in libraries.GENERATING_METHODS
        return generates and (any(given) or facts.kind(facts.owner(call)) != "")  # else data perhaps

    def needs_all(call: cst.Call) -> bool:
        return facts.needs_all(call) or facts.loads_model(call)

    def changes(statement: Statement) -> bool:
        return facts.runs(statement, facts.changes_model) or changes_state(facts, statement, names=False)

    def is_for_all(statement: Statement) -> bool:
        defines = isinstance(statement, cst.FunctionDef | cst.ClassDef)
        return defines or facts.runs(statement, needs_all) or changes(statement)

    statements = [s for s in facts.top_statements if facts.order(s) <= facts.order(last)]
    gated: set[Statement] = set()
    shared: dict[Statement, list[str]] = {}
    for index, seed in enumerate(statements):
        if seed in gated or not facts.runs(seed, makes_text) or facts.runs(seed, needs_all):
            continue
        if (chain := _chain(facts, statements, index, is_for_all)) is not None:
            gated |= chain
        elif not facts.runs(seed, facts.fills_cache):
            bound, here, until = facts.binds_in(seed), facts.end(seed), facts.end(last)
            read = {name for name in bound if facts.is_read_outside(name, seed, until=last)}
            changed = facts.changes_in(seed) - bound
            read |= {n for n in changed if any(here < facts.order(use) <= until for use in facts.loads_of(n))}
            shared[seed] = sorted(name for name in read if not _is_deleted_in(facts, name, seed))
            gated |= set() if changes(seed) else {seed}
    return frozenset(gated), shared


def _is_deleted_in(facts: Facts, name: str, statement: Statement) -> bool:
    """Return whether a statement deletes a name for good: ``del batch`` at the end of a loop."""
    deleted = [use for use in facts.uses(name, statement) if facts.around(use, cst.Del) is not None]
    bound = [b.order for b in facts.bindings_in(statement) if b.name == name]
    return bool(deleted) and max(bound, default=0) < facts.order(deleted[-1])


def _chain(
    facts: Facts, statements: list[Statement], start: int, is_for_all: Callable[[Statement], bool]
) -> set[Statement] | None:
    """Return a statement and those after it that read what it made, directly or not.

    None where one of them is for all ranks.
    """
    uses = facts.once(_uses)
    chain: set[Statement] = set()
    names: set[str] = set()
    for statement in statements[start:]:
        loaded, bound, changed = uses[statement]
        if chain and names.isdisjoint(loaded):
            names -= bound
        elif is_for_all(statement):
            return None
        else:
            chain.add(statement)
            names |= bound | changed
    return chain


def _uses(facts: Facts) -> dict[Statement, tuple[frozenset[str], ...]]:
    """Return the names that each statement of a cell reads, binds, and changes in place."""
    return {s: (facts.loads_in(s), facts.binds_in(s), facts.changes_in(s)) for s in facts.top_statements}


def why_alone(facts: Facts, call: cst.Call) -> str | None:
    """Return why one rank alone makes this call; None where all may."""
    given = {facts.kind(argument.value) for argument in call.args}  # a Trainer writes once
    of_module = not given & {"trainer", "lightning", "accelerator"} and modules.runs(facts, call, _why_itself)
    return WRITES if of_module else _why_itself(facts, call)


def _why_itself(facts: Facts, call: cst.Call) -> str | None:
    if facts.gathers(call):
        return None
    if facts.qualified(call.func) in libraries.RUN_ONCE or _sends(facts, call):
        text = cst_nodes.string_value(call.args[0].value) if call.args else None
        return None if text is not None and is_install(text) else "only rank 0 runs it"
    if facts.fetches_artifact(call):
        return "only rank 0 has this W&B run"
    return WRITES if writes(facts, call) else None


def writes(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call writes to a file or a service, not to a buffer of its own process."""
    return (_writes_somewhere(facts, call) and not _in_own_folder(facts, call)) or _changes_hub(facts, call)


def gives_plain(facts: Facts, call: cst.Call) -> bool:
    """Return whether other ranks can get the result of a call: a text, a number, a program that has been started."""
    is_plain = facts.qualified(call.func) in libraries.PLAIN_RESULTS or facts.fetches_artifact(call)
    return is_plain or any(test(facts, call) for test in (starts_program, _saves, _sends, _changes_hub))


def _sends(facts: Facts, call: cst.Call) -> bool:
    """Match ``session.post(...)`` and ``chat.completions.create(...)`` of a service's client, but for streams."""
    name = facts.qualified(call.func).rpartition(".")[2] or facts.method(call)
    if name not in libraries.SENDING_METHODS | {"request"}:
        return False
    told = cst_nodes.string_value(facts.value(cst_nodes.given(call, 0, "method"))) or ""
    made_by = {facts.qualified(call.func), *facts.origins(facts.owner(call) or call.func)}
    asks = (name == "request" and told.upper() in ("GET", "HEAD")) or facts.switch(call, "stream") != {False}
    return not (asks or made_by.isdisjoint(libraries.SESSIONS))


def changes_server(facts: Facts, call: cst.Call) -> bool:
    """Match ``connection.commit()`` and ``df.to_sql("t", engine)`` of a client of a server: each rank has its own."""
    if (name := facts.method(call)) not in libraries.CHANGES_SERVER:
        return False
    clients = [a.value for a in call.args] if name == "to_sql" else [facts.owner(call) or call.func]
    return any(map(libraries.CLIENTS.match, set[str]().union(*map(facts.origins, clients))))


def starts_program(facts: Facts, call: cst.Call) -> bool:
    """Match ``os.popen(x)`` and ``subprocess.Popen(x)`` where no thread reads from it, and no one asks for a number."""
    if facts.qualified(call.func) not in ("os.popen", "subprocess.Popen"):
        return False
    if isinstance(around := facts.parent(call), cst.Attribute):
        return around.attr.value != "pid"
    asks = any(attribute.attr.value in ("pid", "fileno") for attribute in facts.attributes)
    return not (asks or any(map(facts.imports_of, ("threading", "select", "selectors", "fcntl", "psutil"))))


def _changes_hub(facts: Facts, call: cst.Call) -> bool:
    """Match ``upload_folder(...)`` of ``huggingface_hub``, and the methods of its clients."""
    name = facts.qualified(call.func)
    if libraries.CHANGES_HUB.match(facts.method(call) or name.rpartition(".")[2]) is None:
        return False
    owner, package = facts.owner(call), "huggingface_hub"
    return name.startswith(f"{package}.") or (owner is not None and facts.comes_from(owner, package))


def _writes_somewhere(facts: Facts, call: cst.Call) -> bool:
    name, method = facts.qualified(call.func), facts.method(call)
    if name in libraries.WRITING_FUNCTIONS or changes_path(facts, call):
        return not files.may_exist(facts, call) or files.is_looked_for(facts, call)
    if method in libraries.WRITING_METHODS:
        if method in libraries.WRITING_WITH_PATH and cst_nodes.given(call, 0, "path_or_buf", "buf") is None:
            return False
        kind = facts.kind(facts.owner(call))  # which write once; others wait for a Trainer about to train
        late = facts.order(call) > min(map(facts.order, facts.collective_statements), default=0)
        return kind != "accelerator" and not (kind == "trainer" and late)
    if name == libraries.LOG_SINK:
        return kept_open(facts, call) is not None
    return any(test(facts, call) for test in (tracks, _saves, _is_told_where, maps_file, _opens_to_write))


def _saves(facts: Facts, call: cst.Call) -> bool:
    """Match ``saver.save_checkpoint(epoch)`` of a library out of sight, whatever it gives: its name says so."""
    owner, method = facts.owner(call), facts.method(call)
    names = facts.function_names(call) or {f"{made}.{method}" for made in facts.origins(owner or call)}
    is_known = facts.called_functions(call) or any(modules.functions_of(facts, call))
    meets = facts.kind(owner) in ("trainer", "accelerator", "lightning")
    shown = [a.value for a in call.args] if re.search("image|video|result|plot|figure", method) else []
    called = (*shown, *(inside.func for inside in facts.calls_in(call)))
    meets |= any(facts.kind(of) == "model" for of in called)  # which all ranks have to call
    return any(map(libraries.SAVES.fullmatch, names)) and not (is_known or meets)


def tracks(facts: Facts, call: cst.Call, packages: Collection[str] = libraries.TRACKERS) -> bool:
    """Match ``trackio.init(...)`` and ``run.log(...)``; no callback yet, nor the block ``with run.train():``.

    What asks a tracker for another run, as ``Task.get_task(id)`` does, or that run for a value, only reads.
    """
    name = facts.qualified(call.func)
    names = isinstance(facts.parent(call), cst.WithItem) and not facts.is_of_import(call.func)
    made_by = () if names else (name, *facts.origins(facts.owner(call) or call.func))
    known = [made.rpartition(".")[2] for made in made_by if made.partition(".")[0] in packages]
    reads = all(map(libraries.READS_RUN.fullmatch, (*known, last_name(call.func))))
    return bool(known) and not (reads or name.endswith("Callback"))


@asked_once
def runs_of_rank_0(facts: Facts) -> tuple[frozenset[cst.Call], frozenset[cst.BaseExpression]]:
    """Return calls ``task = Task.init()`` of trackers whose runs rank 0 alone has, and what it sends of them.

    Methods of these runs are called, the notebook's functions get them, and no other value is made of them.
    """
    first = (c for c in facts.live_calls if not isinstance(facts.parent(c), (cst.Expr, *_INSIDE)))
    early = (c for c in first if tracks(facts, c) and _is_followed(facts, c) and not _gives_sent(c.func))
    opened = frozenset(c for c in early if not (facts.is_after_training(c) or is_known_to_module(facts, c)))
    nodes = (n for n in (*facts.name_loads, *facts.attributes) if opened and not facts.is_of_import(n))
    of_runs = [n for n in nodes if not facts.is_after_training(n) and facts.is_made_of(n, opened)]
    values = (facts.called(n) or n for n in of_runs if _gives_sent(n) and called_by_all(facts, n))
    given = frozenset(v for v in values if not isinstance(facts.parent(v), cst.Expr | cst.AssignTarget))
    sent = frozenset(v for v in given if not facts.is_made_of(v, given - {v}))  # no model of settings
    own = {c: [*facts.run_by(c.func)] for c in facts.live_calls} if opened else {}
    keeps = {f for fs in own.values() for f in fs if f.name.value[:2] == "__" or facts.is_made_of(f, opened)}
    free = sent.union(c for c, fs in own.items() if fs and keeps.isdisjoint(fs))  # what they give is no run's
    others = (n for n in of_runs if sent.isdisjoint((n, *facts.parents(n))) and not facts.is_made_of(n, free))
    kept = [n for n in others if not _is_followed(facts, n)]
    gives = {run for run in opened if any(facts.is_made_of(node, run) for node in kept)}
    runs = opened - {run for run in gives if facts.qualified(run.func) != "visdom.Visdom"}  # gives texts
    return runs, frozenset(value for value in sent if facts.is_made_of(value, runs))


def _gives_sent(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Attribute) and libraries.SENT_OF_RUN.fullmatch(node.attr.value) is not None


def _is_followed(facts: Facts, node: cst.CSTNode) -> bool:
    """Return whether nothing is computed of a run where it stands, but where it is followed: ``log = run.logger()``."""
    taker = next(p for p in facts.parents(node) if not isinstance(p, _INSIDE))
    match taker, facts.parent(taker):
        case cst.Arg(), cst.Call() as call:
            return bool(facts.called_functions(call))
        case cst.Return(), _:
            function = facts.around(taker, cst.FunctionDef)
            return function is not None and bool(facts.callers(function))
        case cst.Element(), cst.Tuple() as several:
            return m.matches(facts.statement(several), _UNPACKS)
    return m.matches(taker, _DROPS)


# What a tracker's module knows, in small letters: no class.
_OF_MODULE = re.compile(rf"(?:{'|'.join(libraries.TRACKERS)})\.[a-z._\d]+")
_INSIDE = (cst.Attribute, cst.Call, cst.Subscript)
_NAMES = m.Assign([m.AssignTarget(m.Name() | m.Attribute())], m.Call() | m.Name() | m.Attribute())
_UNPACKS = m.SimpleStatementLine([m.Assign([m.AssignTarget(m.Tuple())])])
_IS_THERE = m.Comparison(m.Name() | m.Attribute(), [m.ComparisonTarget(m.Is() | m.IsNot(), m.Name("None"))])
_DROPS = m.Expr() | m.AssignTarget() | m.WithItem() | m.If(m.Name() | m.Attribute()) | _IS_THERE | _NAMES


def is_known_to_module(facts: Facts, call: cst.Call) -> bool:
    """Return whether a value may be read, later, of what a tracker's module knows since a call: ``swanlab.config``."""
    return facts.order(call) < facts.once(_first_read) < float("inf") and tracks(facts, call)


def _first_read(facts: Facts) -> float:
    read = (n for n in facts.attributes if not isinstance(facts.parent(n), cst.Attribute | cst.Call))
    known = (n for n in read if _OF_MODULE.fullmatch(facts.qualified(n)) and not facts.is_after_training(n))
    return min(map(facts.order, known), default=float("inf"))


def _is_told_where(facts: Facts, call: cst.Call) -> bool:
    """Match ``parts.ratio("rows", output="parts")``: a function of a library that is told where to write, no more.

    So are ``d2l.reorg_test(folder)`` and others whose names say that they move files.
    """
    named = (argument.keyword.value for argument in call.args if argument.keyword is not None)
    names = facts.function_names(call)
    is_told = any(map(libraries.REARRANGES.fullmatch, names)) or not libraries.OUTPUTS.isdisjoint(named)
    if not (names and is_told and isinstance(facts.parent(call), cst.Expr)) or facts.called_functions(call):
        return False
    computes = any(name.partition(".")[0] in libraries.COMPUTING_PACKAGES for name in names)
    return not computes and not any(facts.kind(argument.value) for argument in call.args)


def changes_path(facts: Facts, call: cst.Call) -> bool:
    """Match ``Path("x").mkdir()``, ``folder.mkdir(parents=True)`` and ``image.save("x.png")``."""
    if not isinstance(call.func, cst.Attribute):
        return False
    method, owner = call.func.attr.value, call.func.value
    if method == "save":  # image.save("x.png"), of an object that is not of the notebook's own classes
        if facts.called_functions(call) or facts.kind(owner) in ("trainer", "accelerator"):
            return False
        text = cst_nodes.string_value(facts.value(call.args[0].value)) if call.args else None
        return files.is_given_path(facts, call) and (text is None or not {".", "/"}.isdisjoint(text))
    moves, is_one = method in ("replace", "rename"), [argument.keyword for argument in call.args] == [None]
    if method not in libraries.WRITING_PATH_METHODS or (moves and not is_one):
        return False
    if facts.carries(owner, files.path) or (moves and facts.carries(call.args[0].value, files.path)):
        return True
    given = {argument.keyword.value for argument in call.args if argument.keyword is not None}
    named = not call.args or bool(given & {"parents", "exist_ok", "missing_ok"})
    of_class = any(name.rpartition(".")[2][:1].isupper() for name in facts.origins(owner))
    own = of_class or cst_nodes.code_of(owner) in ("self", "cls") or facts.called_functions(call)
    return named and not own


# What can write to os.devnull in place of a file.
_TO_NOWHERE = frozenset("open io.open codecs.open os.open gzip.open bz2.open lzma.open".split())


def _opens_to_write(facts: Facts, call: cst.Call) -> bool:
    """Match ``open(path, "w")`` and ``path.open("r+")``, and archives that are opened so."""
    return not set("wax+").isdisjoint(files.mode(facts, call))


def kept_open(facts: Facts, call: cst.Call) -> cst.BaseExpression | None:
    """Return the path of a file that a call opens for writing with no ``with`` that closes it."""
    if facts.qualified(call.func) == libraries.LOG_SINK:
        return cst_nodes.given(call, 0, "sink")
    return None if isinstance(facts.parent(call), cst.WithItem) else opened(facts, call)


def opened(facts: Facts, call: cst.Call) -> cst.BaseExpression | None:
    """Return the path that ``open(path, "w")`` opens, where the file is only written to."""
    writes_only = _opens_to_write(facts, call) and {*files.mode(facts, call)}.isdisjoint("+x")
    is_open = facts.qualified(call.func) in _TO_NOWHERE
    return cst_nodes.given(call, 0, "file", "path", "filename") if is_open and writes_only else None


def stays_open(facts: Facts, call: cst.Call) -> bool:
    """Return whether the file of `kept_open` is open while the ranks train: no rank reads it before they have."""
    if kept_open(facts, call) is None:
        return False
    if facts.qualified(call.func) == libraries.LOG_SINK:
        return True
    around = facts.parent(call)
    made = facts.parent(around) if isinstance(around, cst.Arg) else None  # writer = csv.writer(open(...))
    is_kept = isinstance(made, cst.Call) and isinstance(facts.parent(made), cst.Assign | cst.AnnAssign)
    if isinstance(around, cst.Attribute) or (isinstance(around, cst.Arg) and not is_kept):
        return False  # open(...).write(x), json.dump(x, open(...))
    if (scope := facts.scope(call)) is not None:
        return not any(facts.method(other) == "close" for other in facts.calls_in(scope))
    if (closing := _closing(facts, call)) is None:
        return True
    first, last = (facts.order(facts.top_statement(node)) for node in (call, closing))
    return any(first <= facts.order(statement) <= last for statement in facts.collective_statements)


def closing_statement(facts: Facts, call: cst.Call) -> Statement | None:
    """Return the statement of a cell that does nothing but close the file that a call of a cell opens."""
    closing = _closing(facts, call)
    line = facts.line_of(closing) if closing is not None and facts.scope(call) is None else None
    return line if line is not None and line is facts.top_statement(line) else None


def _closing(facts: Facts, call: cst.Call) -> cst.Call | None:
    """Return the first call that closes what a call opens: ``name.close()`` after ``name = open(...)``."""
    later = (c for c in facts.live_calls if facts.method(c) == "close" and facts.order(c) > facts.order(call))
    return next((other for other in later if facts.is_made_of(other.func, call)), None)


def reads_back(facts: Facts, call: cst.Call) -> bool:
    """Return whether a write's function uses the path again, or its class reads the file: each rank needs it."""
    path, function = _written(facts, call), facts.scope(call)
    if path is None or not isinstance(function, cst.FunctionDef) or not writes(facts, call):
        return False
    code, home = cst_nodes.code_of(path), facts.scope(function)
    of_class = isinstance(home, cst.ClassDef) and code.startswith("self.")
    for node in facts.nodes(type(path), within=home if of_class and home is not None else function.body):
        if cst_nodes.code_of(node) != code:
            continue
        is_before = facts.scope(node) is function and facts.order(node) <= facts.end(call)
        around = [parent for parent in facts.parents(node) if isinstance(parent, cst.Call)]
        directly = bool(around) and facts.parent(node) in (*around[0].args, around[0].func)
        needs_none = any(facts.shows(c) or files.is_file_test(facts, c) or writes(facts, c) for c in around)
        if not is_before and (directly or not of_class) and not needs_none:
            return True
    return False


def _written(facts: Facts, call: cst.Call) -> cst.BaseExpression | None:
    """Return the path of a file that a call writes, where its name tells the argument."""
    if (path := opened(facts, call)) is not None:
        return path
    is_second = facts.qualified(call.func) in libraries.VALUE_FIRST | libraries.SOURCE_FIRST
    return cst_nodes.given(call, 1 if is_second else 0)


# The runtime lets their files appear whole, so that a rank can read what another one writes.
SAVED_WHOLE = frozenset("torch.save numpy.save safetensors.torch.save_file".split())
# What opens a file and keeps it open: the name of the path, the place and the name of the mode, and the usual mode.
_KEPT = {
    "sqlite3.connect": ("database", 0, "", "rw"),
    "sqlite3.dbapi2.connect": ("database", 0, "", "rw"),
    "shelve.open": ("filename", 0, "", "rw"),
    "numpy.memmap": ("filename", 2, "mode", "r+"),
    "numpy.lib.format.open_memmap": ("filename", 1, "mode", "r+"),
    "numpy.load": ("file", 1, "mmap_mode", "r"),
    "h5py.File": ("name", 1, "mode", "r"),
}


def _kept(facts: Facts, call: cst.Call) -> tuple[str, str]:
    """Return the name of the path of a database or an array in a file that a call opens, and the mode."""
    path, place, name, usual = _KEPT.get(facts.qualified(call.func), ("", 0, "", "r"))
    mode = cst_nodes.given(call, place, name) if name else None
    return path, usual if mode is None else cst_nodes.string_value(mode) or "r"


def kept_path(facts: Facts, call: cst.Call) -> cst.BaseExpression | None:
    """Return the path of a database, an array or a file that a call opens to change it, or where it makes its own."""
    if changes_file(facts, call):
        return cst_nodes.given(call, 0, "file")
    if facts.qualified(call.func).startswith("tempfile."):
        return facts.keyword(call, "dir")
    for own, function in modules.functions_of(facts, call):
        paths = (kept_path(own, c) for c in own.calls_in(function.body) if opens_base(own, c))
        for name in (path.value for path in paths if isinstance(path, cst.Name)):
            return own.passes(function, name, call)
    path, mode = _kept(facts, call)
    return None if mode in ("r", "c") else cst_nodes.given(call, 0, path)


def opens_base(facts: Facts, call: cst.Call) -> bool:
    """Match ``sqlite3.connect(path)`` and ``shelve.open(path)``, whose statements all ranks execute."""
    return facts.qualified(call.func) in ("sqlite3.connect", "sqlite3.dbapi2.connect", "shelve.open")


def changes_file(facts: Facts, call: cst.Call) -> bool:
    """Match ``open(path, "r+")`` and ``open(path, "a+")``: what is read there has been written before."""
    letters = {*files.mode(facts, call)}
    is_open = facts.qualified(call.func) in ("open", "io.open", "codecs.open")
    return is_open and "+" in letters and letters.isdisjoint("wx")


def maps_file(facts: Facts, call: cst.Call) -> bool:
    """Match ``numpy.memmap(..., mode="w+")`` and the like, which create a file and keep it open."""
    return _kept(facts, call)[1] == "w+"


def _in_own_folder(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call writes to a buffer, or below a temporary directory, that no other rank knows."""
    name, function = facts.qualified(call.func), call.func
    of_path = name not in libraries.WRITING_FUNCTIONS | files.OPENING
    if of_path and isinstance(function, cst.Attribute) and function.attr.value in _TO_OWNER:
        return facts.carries(function.value, files.own_folder)
    given = call.args[1:] if name in libraries.SOURCE_FIRST | libraries.VALUE_FIRST else call.args
    given = call.args[:1] if name == "shutil.make_archive" else given
    return any(facts.carries(argument.value, files.own_folder) for argument in given)


# Methods that write to the path that they are called on; rename and replace write to their argument.
_TO_OWNER = libraries.WRITING_PATH_METHODS - {"rename", "replace"} | {"write_text", "write_bytes", "open"}
