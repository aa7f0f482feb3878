"""Look into the modules beside the notebook: what their functions do is judged as that of the notebook's own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from functools import cache, partial

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.shell_commands import shell_calls
from nb2ddp.analysis.solver import Solver
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import parse_cell
from nb2ddp.source.module_files import module_file

Of = tuple[Facts, cst.FunctionDef]


def reader(facts: Facts) -> Callable[[str], Facts | None]:
    """Return what reads a module by its dotted name; its facts are None where it is not in sight, or no Python."""
    added = (call for call in facts.live_calls if facts.qualified(call.func).startswith("sys.path."))
    texts = (cst_nodes.string_value(facts.value(a.value)) for call in added for a in call.args[-1:])
    folders = [*facts.folders, *(folder / text for text in texts if text for folder in facts.folders[:1])]
    written = {shell.file: shell.body for shell in shell_calls(facts) if shell.name == "writefile"}

    @cache
    def known(name: str) -> Facts | None:
        found = module_file(name, folders, written)
        if found is None:
            return None
        file, text = found
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            if file not in facts.modules:
                facts.modules[file] = made = Facts([parse_cell(1, text)], folders=(*folders, file.parent))
                made.modules = facts.modules
        return facts.modules.get(file)

    return known


def functions_of(facts: Facts, call: cst.Call) -> Iterator[Of]:
    """Yield the functions of modules beside the notebook that a call may run, with the facts of their modules."""
    for name in facts.function_names(call):
        own: Facts | None = facts
        for _ in range(4):  # `from .files import save`, in the module that is imported
            place, _, last = name.lstrip(".").rpartition(".")
            if own is None or (own := own.once(reader)(place)) is None:
                break
            found = (b.node for b in own.definitions(last) if b.scope is None)
            yield from ((own, node) for node in found if isinstance(node, cst.FunctionDef))
            name = own.collected.imports.get(last, [""])[-1]


def called(facts: Facts, call: cst.Call) -> Iterator[Of]:
    """Yield the functions that a call runs, the notebook's own and those of modules beside it."""
    yield from ((facts, function) for function in facts.called_functions(call))
    yield from functions_of(facts, call)


def search(_: Facts, wanted: Callable[[Facts, cst.Call], bool]) -> Solver[Of, bool]:
    """Return what tells of a function whether it runs a ``wanted`` call."""

    def steps(key: Of) -> Generator[Of, bool, bool]:
        facts, function = key
        for call in facts.calls_in(function.body):
            if wanted(facts, call):
                return True
            for of in called(facts, call):
                if (yield of):
                    return True
        return False

    return Solver(steps, False)


def may_train(facts: Facts, call: cst.Call) -> bool:
    """Return whether a function of a module trains, calls a model that it is given, or changes its mode."""
    return any(map(facts.once(_training).solve, functions_of(facts, call)))


def _is_for_all(facts: Facts, call: cst.Call) -> bool:
    given, methods = facts.binding(call.func), libraries.COLLECTIVE_METHODS | libraries.LIGHTNING_METHODS
    is_given = given is not None and isinstance(given.node, cst.Param)  # model(rows)
    trains = facts.is_training(call) or facts.is_for_all(call)
    return is_given or trains or facts.method(call) in methods | {"eval", "load_state_dict"}


_training = partial(search, wanted=_is_for_all)
