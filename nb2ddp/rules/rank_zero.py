"""Write, push and generate on rank 0 only, as long as training has not ended.

Two processes that write one file corrupt it. Text is generated once, on rank 0; what training needs of it is
broadcast to all ranks. Training, evaluation and training arguments are never gated by rank: a rank that takes
another path leaves the others waiting for ever.

.. code-block:: diff

     from trl import SFTTrainer
    -processor.save_pretrained("start")
    +with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    +    if is_main:
    +        processor.save_pretrained("start")
     trainer = SFTTrainer(model)
     trainer.train()
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import filterfalse
from typing import Literal

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis import files, modules, rank_zero_work
from nb2ddp.analysis.common_paths import called_by_all, is_used_later, leaves, parts_ranks
from nb2ddp.analysis.drawn_names import shared_names
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.init_place import in_setup_step
from nb2ddp.options import Options
from nb2ddp.rewriting.deferring import deferring
from nb2ddp.rewriting.findings import Decline, Edit, Finding, Gate, Insert, Note
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement

_PYTHON = re.compile(r"""[\[(]?\s*(?:sys\.executable|f?["'](?:python|accelerate|torchrun|\{sys\.exec))""")
_BY_LAMBDA = "this lambda writes on every rank, at the same time; make it a function with `def`"
_SENT_BY_ALL = "every rank sends this, so a server or a database does it once for each of them"
_WITH_TRAINING = "this writes on every rank, for every rank needs its statement; write on a line of its own"
_WITH_MODELS = "this function writes on every rank, for it trains or calls models: write in one of its own"


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    last = facts.last_collective
    assert last is not None  # the rule is of training
    (generating, shared), gone = rank_zero_work.generation(facts), in_setup_step(facts)
    for statement in facts.top_statements:
        if statement in generating:
            yield Gate(statement, "rank-zero-then-wait", "only rank 0 generates")
        if names := shared.get(statement):
            made = ", ".join(names)
            value = made if len(names) == 1 else f"({made})"
            code = f"{made} = {helper(facts, 'from_main_process')}(lambda: {value})"
            yield Insert(statement, "after", code, "every rank gets what rank 0 generated")
    own = dict(_own_files(facts))
    for call, path in own.items():
        how = "(anew=True, path=_)" if rank_zero_work.changes_file(facts, call) else ""
        if path is None:
            yield Note("all ranks open this function's database and write to it: open it in a cell", call)
            continue
        yield Edit.inside(path, "other ranks work on a copy of the file", f"{helper(facts, 'own_file')}{how}")
        if how:
            end = rank_zero_work.closing_statement(facts, call) or facts.statement(call)
            code = f"{helper(facts, 'from_main_process')}(lambda: None)  # nb2ddp: wait for rank 0's file"
            yield Insert(end, "after", code, "the other ranks wait until rank 0 has changed the file")
    own |= {call: call for call in shared_names(facts) if isinstance(call, cst.Call)}  # which make folders
    runs, sent = rank_zero_work.runs_of_rank_0(facts)

    def is_of_run(_: Facts, node: cst.CSTNode) -> bool | None:
        return node in runs or (False if node in sent else None)

    for read in sent:
        yield from deferring(facts, read, "only rank 0 has a run, and all ranks get what is read of it")
    for run in runs:  # of `Task.current_task().get_logger()`, the first call
        opens = next((c.func for c in facts.calls_in(run.func) if facts.is_of_import(c.func)), run.func)
        own |= dict.fromkeys((run, *facts.calls_in(run.func)), opens)
        if not facts.carries(run.func, is_of_run):
            yield Edit.inside(opens, "only rank 0 has a run", helper(facts, "on_main_process"))
    changing = (call for call in facts.live_calls if rank_zero_work.changes_server(facts, call))
    if (first := next(filterfalse(facts.is_after_training, changing), None)) is not None:
        yield Note(_SENT_BY_ALL, first)
    for call in facts.live_calls:
        why, statement = rank_zero_work.why_alone(facts, call), facts.statement(call)
        if why is None or call in own or facts.is_after_training(call) or facts.top_statement(call) in gone:
            continue
        around = {statement, *facts.parents(call)}
        if facts.carries(call.func, is_of_run) or around & generating:
            continue
        if modules.runs(facts, call, modules.trains):
            yield Note(_WITH_MODELS, call)
            continue
        if isinstance(facts.scope(call), cst.Lambda):
            if rank_zero_work.writes(facts, call):
                yield _elsewhere(facts, call, _BY_LAMBDA)
            continue
        is_new = "x" in files.mode(facts, call)
        if is_new and (facts.runs(statement, facts.needs_all) or not called_by_all(facts, call)):
            yield Decline('one process alone can create a file ("x"): open it with "w", or earlier', call)
            continue
        if facts.scope(call) is not None:
            running = _running(facts, call, why)
            yield from _in_function(facts, call, statement) if why == rank_zero_work.WRITES else running
            continue
        used, in_with = is_used_later(facts, statement, last), isinstance(statement, cst.With)
        used |= rank_zero_work.is_known_to_module(facts, call)
        kept = rank_zero_work.kept_open(facts, call)
        if kept is not None and used and not in_with:
            closing = rank_zero_work.closing_statement(facts, call)
            if closing is not None or rank_zero_work.stays_open(facts, call):
                yield _of_rank_0(facts, kept)
                if closing is not None and not facts.is_after_training(closing):
                    yield Gate(closing, "rank-zero-then-wait", rank_zero_work.WRITES)
                continue
        if facts.runs(statement, facts.needs_all):
            yield _elsewhere(facts, call, _WITH_TRAINING)
            continue
        started = rank_zero_work.starts_program(facts, call) and (used or leaves(facts, statement))
        if started or (used and not in_with):
            if (skipped := _may_be_skipped(facts, call)) == "file":
                continue  # the rule file-guards lets rank 0 go first, and the others find what it made
            tried = facts.around(call, cst.Try) or statement
            if skipped == "error" and not facts.runs(tried, facts.needs_all):
                yield Gate(tried, "main-first", "rank 0 goes first, the others find what it has started")
            elif rank_zero_work.gives_plain(facts, call) and not skipped:
                yield from _on_rank_0(facts, call, why)
            elif why == rank_zero_work.WRITES and not (kept or rank_zero_work.tracks(facts, call)):
                yield Gate(statement, "in-turn", "the ranks write one after another")
            else:
                does = "writes" if why == rank_zero_work.WRITES else "runs"
                yield Note(f"this {does} on every rank, because its result is used later", call)
            continue
        yield from _without_ranks(facts, call)
        if used or parts_ranks(facts, statement):
            yield from _each_in_turn(facts, call, statement, why)
        else:
            by_all = called_by_all(facts, call)
            statement = _fetching_loop(facts, statement) if by_all else statement
            yield Gate(statement, "rank-zero-then-wait" if by_all else "rank-zero", why)


def _own_files(facts: Facts) -> Iterator[tuple[cst.Call, cst.BaseExpression | None]]:
    """Yield what opens a database, an array or a file that all ranks change, with its path: others get copies."""
    for call in facts.live_calls:
        path = rank_zero_work.kept_path(facts, call)
        of_module = modules.runs(facts, call, rank_zero_work.opens_base)
        if not (path or of_module) or facts.is_after_training(call) or not called_by_all(facts, call):
            continue
        of_all = facts.qualified(call.func).startswith(("sqlite3.", "shelve.", "tempfile."))
        if of_all or of_module or rank_zero_work.changes_file(facts, call) or _is_filled(facts, call):
            yield call, path


def _is_filled(facts: Facts, opening: cst.Call) -> bool:
    """Return whether items of what a call opens are changed in a loop that trains: ``bank[rows] += x``."""
    targets = [node.target for node in facts.nodes(cst.AssignTarget, cst.AugAssign)]
    filled = (t for t in targets if isinstance(t, cst.Subscript) and facts.is_made_of(t.value, opening))
    return any(facts.runs(loop, facts.is_training) for item in filled for loop in facts.loops_to(item))


def _each_in_turn(facts: Facts, call: cst.Call, statement: Statement, why: str) -> Iterator[Finding]:
    """Let every rank run what ``break``, ``continue`` or ``return`` leaves, or what changes values read elsewhere.

    A rank that skips it would go another way. Lines that are appended only rank 0 writes.
    """
    does = "write" if why == rank_zero_work.WRITES else "run it"
    tells = facts.scope(call) is not None and rank_zero_work.tracks(facts, call)
    yield Gate(statement, "in-turn", f"the ranks {does} one after another")
    path = rank_zero_work.opened(facts, call)
    if path is not None and "a" in files.mode(facts, call):  # each line once
        yield _of_rank_0(facts, path)
    elif _moves(facts, call):
        yield Edit.inside(call.func, rank_zero_work.WRITES, helper(facts, "on_main_process"))
    elif tells or modules.runs(facts, call, _writes_unseen):
        yield Note("this writes on every rank, because its result is used", call)


def _writes_unseen(facts: Facts, call: cst.Call) -> bool:
    """Match programs and what writes by C++: Python does not see the files, so a turn's are not put back."""
    unseen = ("to_parquet", "to_feather", "write_table", "write_parquet")
    return facts.method(call) in unseen or facts.qualified(call.func) in libraries.RUNNING_FUNCTIONS


def _is_alone(facts: Facts, branch: cst.If | cst.Else) -> bool:
    """Return whether all that stands in a branch, and in those beside it, is for rank 0 alone, or printed."""
    for line in branch.body.body:
        for part in line.body if isinstance(line, cst.SimpleStatementLine) else [line]:
            call = part.value if isinstance(part, cst.Expr) else None
            is_alone = isinstance(call, cst.Call) and rank_zero_work.why_alone(facts, call) is not None
            prints = isinstance(call, cst.Call) and facts.qualified(call.func) == "print"
            if not (is_alone or prints or (isinstance(part, cst.If) and _is_alone(facts, part))):
                return False
    other = branch.orelse if isinstance(branch, cst.If) else None
    return other is None or _is_alone(facts, other)


def _running(facts: Facts, call: cst.Call, why: str) -> Iterator[Finding]:
    """Run a program, or send something, once where all ranks call the function that does.

    Elsewhere each rank runs its own: in a reward, or where a dataset makes its rows.
    """
    statement, skipped = facts.statement(call), _may_be_skipped(facts, call)
    ifs = (p for p in facts.parents(call) if isinstance(p, cst.If) and files.looks_at_files(facts, p.test))
    whole = next(ifs, None) if skipped == "file" else None  # rank 0 looks, too
    if whole and isinstance(facts.parent(whole), cst.IndentedBlock) and _is_alone(facts, whole):
        statement, skipped = whole, _may_be_skipped(facts, whole)
    if facts.runs(statement, facts.needs_all) or not called_by_all(facts, call) or skipped:
        if facts.fetches_artifact(call):
            yield Note(f"{why}: download the artifact in a cell, and pass its folder on", call)
        return
    yield from _without_ranks(facts, call)
    if not parts_ranks(facts, statement):
        yield Gate(statement, "rank-zero-then-wait", why)
    elif rank_zero_work.gives_plain(facts, call):
        yield from _on_rank_0(facts, call, why)
    else:
        yield Note("this runs on every rank, because its result is used", call)


def _fetching_loop(facts: Facts, statement: Statement) -> Statement:
    """Return the loop around a statement that asks servers, of which one may fail on a rank alone; else that."""

    def fetches(call: cst.Call) -> bool:
        made_by = (facts.qualified(call.func), *facts.origins(facts.owner(call) or call.func))
        return any(map(libraries.ASKS_SERVER.match, made_by))

    loop, last = facts.loop(statement), facts.last_collective
    if loop is None or facts.scope(loop) is not facts.scope(statement) or not facts.runs(loop, fetches):
        return statement
    used = last is not None and facts.scope(loop) is None and is_used_later(facts, loop, last)
    return statement if used or parts_ranks(facts, loop) or facts.runs(loop, facts.is_for_all) else loop


def _may_be_skipped(facts: Facts, call: cst.Call | cst.If) -> Literal["", "file", "error"]:
    """Return why a rank may not come to a call: one that comes later finds a file, or one catches no error."""
    inner: cst.CSTNode = call
    for parent in facts.parents(call):
        if isinstance(parent, cst.FunctionDef):
            return ""
        if isinstance(parent, cst.ExceptHandler):
            return "error"
        match parent:
            case cst.If() | cst.IfExp() | cst.While() if inner is not parent.test:
                if files.looks_at_files(facts, parent.test):
                    return "file"
        inner = parent
    return ""


def _on_rank_0(facts: Facts, call: cst.Call, why: str) -> Iterator[Finding]:
    """Let rank 0 alone make a call whose result all ranks read."""
    yield from _without_ranks(facts, call) if facts.scope(call) is None else ()
    why = f"{why}, and all ranks get its result"
    if rank_zero_work.starts_program(facts, call):
        yield Edit.inside(call.func, why, helper(facts, "shared_process"))
    else:
        yield from deferring(facts, call, why)


def _moves(facts: Facts, call: cst.Call) -> bool:
    """Match a line ``os.remove(old.pop(0))``: the second rank would not find the file."""
    names_it = facts.qualified(call.func) in libraries.MOVING_FUNCTIONS
    moves = names_it or facts.method(call) in libraries.WRITING_PATH_METHODS
    return moves and isinstance(facts.parent(call), cst.Expr)


def _without_ranks(facts: Facts, call: cst.Call) -> Iterator[Edit]:
    """Let a Python that a call starts know of no ranks: it would read RANK and wait for the others."""
    given = any(argument.star for argument in call.args) or facts.keyword(call, "env") is not None
    starts = facts.qualified(call.func).startswith("subprocess.") and bool(call.args) and not given
    if starts and _PYTHON.match(cst_nodes.code_of(call.args[0].value)):
        env = f"{helper(facts, 'environment_without_ranks')}()"
        why = "the program that it starts is no rank of this run"
        yield Edit.items(call, why, {"env": env}, "nb2ddp: without torchrun's RANK variables")


def _of_rank_0(facts: Facts, path: cst.BaseExpression | None) -> Edit:
    """Edit the path of a file: on the other ranks it becomes os.devnull."""
    assert path is not None
    nowhere = f"{facts.our('os')}.devnull"
    return Edit.choosing(path, rank_zero_work.WRITES, helper(facts, "is_main_process"), nowhere)


def _elsewhere(facts: Facts, call: cst.Call, why: str) -> Edit | Note:
    """Let the other ranks write a file nowhere that all of them come to; note why where its path is not in sight."""
    path = rank_zero_work.opened(facts, call)
    return Note(why, call) if path is None else _of_rank_0(facts, path)


def _in_function(facts: Facts, call: cst.Call, statement: Statement) -> Iterator[Finding]:
    """Gate a write in a function: what calls it decides.

    Where all ranks call the function, rank 0 writes and the others wait. A callback or a metric may run on one rank
    alone, so none waits for it while training goes on; before training the ranks run the function one after another,
    because it may read back what it wrote.
    """
    early = (top for top in facts.top_statements if not facts.is_after_training(top))
    runners = [top for top in early if facts.runs(top, lambda other: other is call)]
    if rank_zero_work.stays_open(facts, call):
        yield _of_rank_0(facts, rank_zero_work.kept_open(facts, call))
        return
    if facts.runs(statement, facts.needs_all):
        yield _elsewhere(facts, call, _WITH_TRAINING)
        return
    all_call, apart = called_by_all(facts, call), parts_ranks(facts, statement)
    if all_call and apart and rank_zero_work.gives_plain(facts, call) and not _may_be_skipped(facts, call):
        yield from _on_rank_0(facts, call, rank_zero_work.WRITES)
        return
    if not all_call and not apart and "a" in files.mode(facts, call):  # a line of a log, once
        yield Gate(statement, "rank-zero", rank_zero_work.WRITES)
        return
    closed = apart and rank_zero_work.kept_open(facts, call) is not None  # by a later line, and read then
    in_place = all_call and not closed and not rank_zero_work.maps_file(facts, call)
    in_place = in_place and not any(facts.runs(top, facts.once(_saving)) for top in runners)
    in_place |= all_call and not apart and files.is_looked_for(facts, call)  # when all ranks have looked
    if in_place or not runners or any(facts.runs(top, facts.needs_all) for top in runners):
        yield from _while_training(facts, call, all_call=all_call, apart=apart)
        return
    for top in runners:
        if not facts.runs(top, facts.fills_cache):  # the rule main-first handles these
            yield Gate(top, "in-turn", "the ranks write one after another")


def _saving(facts: Facts) -> Callable[[cst.Call], bool]:
    """Return a test for what may save a file on every rank: ``row["image"].save(path)``, of what cannot be told."""

    def saves(call: cst.Call) -> bool:
        is_known = facts.called_functions(call) or rank_zero_work.writes(facts, call)
        return facts.method(call).startswith("save") and bool(call.args) and not is_known

    return saves


def _while_training(facts: Facts, call: cst.Call, *, all_call: bool, apart: bool) -> Iterator[Finding]:
    """Gate a write in a function; ``apart`` says that a rank which skips it would go another way."""
    statement = facts.statement(call)
    if all_call and not apart:
        yield Gate(_fetching_loop(facts, statement), "rank-zero-then-wait", rank_zero_work.WRITES)
    elif rank_zero_work.kept_open(facts, call) is not None:
        yield _of_rank_0(facts, rank_zero_work.kept_open(facts, call))
    elif not all_call and rank_zero_work.reads_back(facts, call):
        if facts.qualified(call.func) not in rank_zero_work.SAVED_WHOLE:
            why = "every rank writes this file, because it reads it again at once, and may find another rank's half"
            yield Note(f"{why}: write to a name of its own first, then os.replace()", call)
    elif not apart:
        yield Gate(statement, "rank-zero", rank_zero_work.WRITES)
    elif all_call and not facts.nodes(cst.Yield, within=statement):  # which may go on in another's turn
        yield from _each_in_turn(facts, call, statement, rank_zero_work.WRITES)
    elif _moves(facts, call):
        yield Edit.inside(call.func, rank_zero_work.WRITES, helper(facts, "on_main_process"))
    else:
        yield _elsewhere(facts, call, "this writes on every rank, because the rest of its function needs it")
