"""Replace or report what only a notebook has: a display, a keyboard, Colab's services, logins, ports.

Plots are saved to files, Colab's secrets come from the environment, and a login that asks for a token is removed,
because HF_TOKEN or WANDB_API_KEY gives it. Code that waits for the keyboard before training stops the conversion, but
where a variable may give it. A server on a fixed port, code that goes through all global names, and paths that only
this machine has, are noted.

.. code-block:: diff

     import matplotlib.pyplot as plt
    -from google.colab import userdata
    -token = userdata.get("HF_TOKEN")
    +token = os.environ.get("HF_TOKEN")
     plt.plot(lengths)
    -plt.show()
    +ddp.save_plots()
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.analysis.drawn_names import names_run, shared_names
from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Decline, Drop, Edit, Finding, Note
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes

_COLAB = "google.colab"
_OF_ITS_PAGE = ("drive.", "data_table.", "output.", "widgets.", "runtime.", "files.download", "files.upload")
_SHOWS = re.compile(r"(?:matplotlib_inline|IPython).*set_matplotlib_|.*remove_callback\(\S*NotebookProgress")
_KILLING = re.compile(r"(?:\w+\.)*(?:9|15|SIGKILL|SIGTERM)")
_KEYBOARD = frozenset({"input", "getpass.getpass"})
# Logins that ask for a token, where they are given none by its name or by place.
_LOGIN = re.compile(r"huggingface_hub\.(?:notebook_|interpreter_)?login|wandb\.login")
# What each package reads instead, from the environment.
_TOKENS = {"huggingface_hub": "HF_TOKEN", "wandb": "WANDB_API_KEY"}
# Words in the names of functions that open a port, not of those that connect to one.
_SERVING = re.compile(r"launch|serve|start|run|listen|bind|spawn", re.IGNORECASE)
_PORT = re.compile(r"(?:.*_)?port", re.IGNORECASE)
# Paths that no other machine has; what lies beside the notebook, `push` finds.
_LOCAL = re.compile(r"(?:/(?:content(?!/g?drive$)|g?drive|home|Users|media|mnt)/|/root/(?!\.)|\w:[\\/]).+")
# Names that IPython binds as cells run.
_RECORDS = frozenset("_ __ ___ _i _ii _iii _oh _ih _dh In Out _exit_code".split())


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    yield from services(facts, options)
    for call in facts.live_calls:
        name = facts.qualified(call.func)
        if name == "matplotlib.pyplot.show":
            yield Edit.to(call, "plots go to files", f"{helper(facts, 'save_plots')}()")
        elif facts.method(call) == "show" and facts.comes_from(call.func, "plotly"):
            shown = f"{helper(facts, 'show')}({cst_nodes.code_of(facts.owner(call) or call)})"
            yield Edit.to(call, "plots go to files", shown)
        elif name in _KEYBOARD and name not in facts.bound_names:
            yield from _keyboard(facts, call, name)
        elif _LOGIN.fullmatch(name) and _asks_for_token(call):
            yield from _login(facts, call, name.partition(".")[0])
        elif name.startswith("condacolab.") or _ends_kernel(facts, call):
            why = "a script needs no new kernel"
            yield Drop(facts.statement(call), why, comment=f"{why}: it goes on with what it has installed")
        elif _SHOWS.match(f"{name} {cst_nodes.code_of(call)}"):
            yield Drop(facts.statement(call), "this is for the notebook alone")
        elif facts.method(call) == "launch" and facts.comes_from(call.func, "gradio"):
            comment = "nb2ddp: the server ends with the script"
            why = "a notebook goes on while this serves; a script would wait here"
            if facts.keyword(call, "prevent_thread_lock") is None:
                yield Edit.items(call, why, {"prevent_thread_lock": "True"}, comment)
        elif name == "hydra.initialize" and (path := cst_nodes.given(call, 0, "config_path")) is not None:
            paths = f"{facts.our('os')}.path"
            relative = f"{paths}.relpath(start={paths}.dirname({paths}.abspath(__file__)), path=_)"
            if not re.search(r"__file__|^None$", cst_nodes.code_of(path)):
                yield Edit.inside(path, "Hydra looks beside a script, and in a notebook's folder", relative)
        elif name == "globals" and name not in facts.bound_names and _goes_through(facts, call):
            why = "this goes through all global names: the script's own are among them"
            yield Note(f"{why}, `{facts.our('world_size')}` for example", call)
    for name in sorted(_RECORDS - facts.bound_names):
        if (load := next(facts.loads_of(name), None)) is not None:
            why = "is what IPython keeps of cells that have run, and a script has no such name: give the value one"
            yield Decline(f"`{name}` {why}", load)
    yield from _local_files(facts)
    yield from _ports(facts) if options.strategy == "ddp" else ()
    if options.strategy == "ddp" and facts.imports_of("wandb"):
        for attribute in (a for a in facts.attributes if names_run(facts, a) and not facts.is_dead(a)):
            shared = any(facts.contains(value, attribute) for value in shared_names(facts))
            tops = [site for site in facts.sites(attribute) if facts.scope(site) is None]
            if not (shared or (tops and all(map(facts.is_after_training, tops)))):
                why = "only rank 0 has this W&B run: on the other ranks its name differs, so do not use it in a path"
                yield Note(why, attribute)


def services(facts: Facts, options: Options) -> Iterator[Finding]:
    """Replace or drop what asks for Colab's services, also in the step that installs."""
    for statement in (*facts.imports_of("google"), *facts.imports_of("condacolab")):
        of_colab = re.match(rf"from {_COLAB}|import condacolab$", cst_nodes.code_of(statement).strip())
        if of_colab and not _is_asked(facts, statement) and (line := facts.line_of(statement)) is not None:
            yield Drop(line, "Colab's services are not there in a script")
    for call in facts.live_calls:
        name = facts.qualified(call.func)
        if name.startswith(f"{_COLAB}.") and not facts.definitions(name.rpartition(".")[2]):
            yield from _colab(facts, call, name.removeprefix(f"{_COLAB}."))


def _local_files(facts: Facts) -> Iterator[Note]:
    """Note the paths of this machine's users, disks and drives."""
    found: dict[str, cst.CSTNode] = {}
    for string in facts.strings:
        text = (cst_nodes.string_value(string) or "").strip("\"'")  # of %cd, too
        if _LOCAL.fullmatch(text) and not facts.is_dead(string) and not _is_of_colab(facts, string):
            found.setdefault(text, string)
    if found:
        named = ", ".join(f"`{path}`" for path in list(found)[:3]) + (" and others" if len(found) > 3 else "")
        why = f"only this machine, or Colab's, has {named}: where the script runs elsewhere, name it relative to"
        why += " the notebook, and bring what it reads there. To Kaggle `nb2ddp push --upload-data` brings"
        yield Note(f"{why} that", next(iter(found.values())))


def _ports(facts: Facts) -> Iterator[Note]:
    """Note servers that every rank would start on one port, before training ends."""
    for call in facts.live_calls if facts.last_collective is not None else ():
        name = (facts.method(call) or facts.qualified(call.func)).rpartition(".")[2]
        if not _SERVING.search(name) or name == "launch_openenv" or facts.is_after_training(call):
            continue  # Unsloth's launch_openenv tries ports until one is free
        for place in filter(None, (_port(facts, argument) for argument in call.args)):
            why = "every rank starts a server on this port, and only the first one gets it: in the script,"
            yield Note(f"{why} add `{facts.our('local_rank')}` to the number", place)


def _port(facts: Facts, argument: cst.Arg) -> cst.CSTNode | None:
    """Return the number of a port: in ``port=8000``, in ``("", 8000)``, or bound to a name."""
    value, is_port = argument.value, bool(argument.keyword and _PORT.fullmatch(argument.keyword.value))
    match value:
        case cst.Tuple(elements=[host, number]):
            value, is_port = number.value, cst_nodes.string_value(host.value) is not None
        case cst.Name(value=name):
            is_port = _PORT.fullmatch(name) is not None
    known = facts.value(value)
    return known if is_port and isinstance(known, cst.Integer) and known.value != "0" else None


def _goes_through(facts: Facts, call: cst.Call) -> bool:
    """Return whether all that a call returns is looked at: ``globals().items()``, ``for name in globals()``."""
    parent = facts.parent(call)
    if isinstance(parent, cst.Attribute):
        return parent.attr.value in ("items", "keys", "values", "copy")
    if isinstance(parent, cst.Arg) and isinstance(outer := facts.parent(parent), cst.Call):
        return facts.qualified(outer.func) in ("dict", "list", "set", "sorted", "tuple")
    return isinstance(parent, cst.CompFor | cst.For)


def _keyboard(facts: Facts, call: cst.Call, name: str) -> Iterator[Finding]:
    why = f"{name}() waits for a keyboard, and a run of several processes has none"
    runners = [top for top in facts.top_statements if facts.runs(top, lambda other: other is call)]
    if facts.is_after_training(call) or (runners and all(map(facts.is_after_training, runners))):
        yield Note(f"{why}: it ends here, after training", call)
    elif _is_behind_variable(facts, call):
        yield Note(f"{why}: set the environment variable that is asked for before it", call)
    else:
        why += "; read the value from an environment variable (os.environ). A password or a token belongs"
        yield Decline(f"{why} there or in the platform's secret store, never in the notebook", call)


def _is_behind_variable(facts: Facts, call: cst.Call) -> bool:
    """Match ``os.environ.get("HF_TOKEN") or input()``, and a branch that asks for a variable of the environment."""
    asks = [of for of in facts.parents(call) if isinstance(of, cst.If | cst.IfExp | cst.BooleanOperation)]
    tests = [of.left if isinstance(of, cst.BooleanOperation) else of.test for of in asks]
    values = [of.value for test in tests for name in facts.loads_in(test) for of in facts.bindings(name)]
    codes = [cst_nodes.code_of(part) for part in (*tests, *values) if part is not None]
    return any(re.search(r"\b(environ|getenv)\b", code) for code in codes)


def _ends_kernel(facts: Facts, call: cst.Call) -> bool:
    """Match ``os.kill(os.getpid(), 9)``, a signal that the notebook does not handle: the kernel starts again."""
    if facts.qualified(call.func) != "os.kill" or "os.getpid" not in facts.origins(call.args[0].value):
        return facts.method(call) == "do_shutdown"
    code = cst_nodes.code_of(call.args[-1].value)
    handling = (c for c in facts.live_calls if facts.qualified(c.func) == "signal.signal")
    handled = (cst_nodes.code_of(c.args[0].value) for c in handling)
    return _KILLING.fullmatch(code) is not None and code not in handled


def _asks_for_token(call: cst.Call) -> bool:
    """Return whether a login gets no token; W&B's server and anonymous account are settings, not questions."""
    tokens = (*cst_nodes.unnamed(call.args), *(cst_nodes.keyword_of(call, name) for name in ("token", "key")))
    sets = any(cst_nodes.keyword_of(call, name) is not None for name in ("host", "anonymous"))
    return not sets and all(token is None or cst_nodes.is_word(token, "None") for token in tokens)


def _login(facts: Facts, call: cst.Call, package: str) -> Iterator[Finding]:
    """Yield findings for a login that asks for a token: every rank would wait for a user's answer."""
    variable, line = _TOKENS[package], facts.line_of(call)
    why = f"a script cannot ask for a token: set the environment variable {variable}, which {package} reads"
    if line is not None:
        yield Drop(line, why, comment=f"a script reads the token from {variable}")
    if line is None or package == "wandb":  # of the hub, most models need no token
        yield Note(why, call)


def _colab(facts: Facts, call: cst.Call, name: str) -> Iterator[Finding]:
    line = facts.line_of(call)
    made = facts.parent(call) if name == "files.upload" else None
    if isinstance(made, cst.Assign) and not facts.loaded_names & {b.name for b in facts.bindings_in(made)}:
        line = facts.line_of(made)
    if name == "userdata.get" and len(call.args) == 1:
        key, into = re.sub(r"\b-\b", "_", cst_nodes.code_of(call.args[0].value)), facts.parent(call)
        target = cst_nodes.code_of(into.targets[0].target) if isinstance(into, cst.Assign) else ""
        given = f"{key}, ''" if "environ[" in target else key  # the environment takes no None
        yield Edit.to(call, "secrets come from the environment", f"os.environ.get({given})")
    elif name.startswith("auth.") and line is not None:
        why = "this logs in to Google Cloud in a browser; a script reads GOOGLE_APPLICATION_CREDENTIALS"
        yield Drop(line, why, comment="a script reads GOOGLE_APPLICATION_CREDENTIALS")
        yield Note(f"{why}, the path of a service account's key", call)
    elif name.startswith(_OF_ITS_PAGE) and line is not None:
        yield Drop(line, f"{name} is Colab's; a script has its files where it runs")
    elif _is_of_colab(facts, call) or _is_asked(facts, call) or facts.bindings(cst_nodes.code_of(call.func)):
        return  # a script does not go there
    elif facts.is_after_training(call) and line is not None:
        yield Note(f"{_COLAB}.{name} is not there in a script: the run ends here, after training", call)
    else:
        does = "read its files by their names" if made is not None else "write what it is to do in Python"
        yield Decline(f"{_COLAB}.{name} is not there in a script; {does}", call)


def _is_of_colab(facts: Facts, node: cst.CSTNode) -> bool:
    """Match what stands below ``if "google.colab" in sys.modules:`` or ``if IN_COLAB:``."""
    branches = (n for n in facts.parents(node) if isinstance(n, cst.If) and facts.contains(n.body, node))
    codes = [cst_nodes.code_of(facts.value(branch.test) or branch.test) for branch in branches]
    return any("colab" in code.lower() and "not " not in code for code in codes)


def _is_asked(facts: Facts, node: cst.CSTNode) -> bool:
    """Match what stands in a ``try``, or a ``suppress()``, that goes on where ``google.colab`` cannot be imported."""
    tried = facts.around(node, cst.Try) or facts.around(node, cst.With)
    handlers = tried.handlers if isinstance(tried, cst.Try) and facts.contains(tried.body, node) else ()
    caught = [cst_nodes.code_of(handler.type or cst.Name("Exception")) for handler in handlers]
    caught += [c for item in getattr(tried, "items", ()) if "suppress(" in (c := cst_nodes.code_of(item))]
    imports = tried is not None and re.search(rf"from {_COLAB}[\w.]* import", cst_nodes.code_of(tried.body))
    return bool(imports) and any(re.search("ImportError|ModuleNotFound|Exception", kind) for kind in caught)
