"""Look into the modules beside the notebook: what their functions do is judged as that of the notebook's own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain, starmap

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.shell_commands import shell_calls
from nb2ddp.analysis.solver import Solver, search
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import imported_modules, parse_cell
from nb2ddp.source.module_files import module_file

Of = tuple[Facts, cst.FunctionDef]


def reader(facts: Facts) -> Callable[[str], Facts | None]:
    """Return what reads a module by its dotted name; its facts are None where it is not in sight, or no Python."""
    added = (call for call in facts.live_calls if facts.qualified(call.func).startswith("sys.path."))
    texts = (cst_nodes.string_value(facts.value(a.value)) for call in added for a in call.args[-1:])
    folders = [*facts.folders, *(folder / text for text in texts if text for folder in facts.folders[:1])]
    written = facts.written | {s.file: s.body for s in shell_calls(facts) if s.name == "writefile"}

    @cache
    def known(name: str) -> Facts | None:
        if (found := module_file(name, folders, written)) is None:
            return None
        file, text = found
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            if file not in facts.modules:
                facts.modules[file] = made = Facts([parse_cell(1, text)], folders=(*folders, file.parent))
                made.modules, made.written = facts.modules, written
        return facts.modules.get(file)

    return known


def imported(facts: Facts) -> list[Facts]:
    """Return the facts of all modules beside the notebook that it imports, and of those that these import."""
    found = [facts]
    for own in found:  # which grow meanwhile
        names = [n for node in own.nodes(cst.Import, cst.ImportFrom) for n in imported_modules(node)]
        for name in (*names, *chain(*own.collected.imports.values())):  # `from package import module`: both
            module = own.once(reader)(name.lstrip("."))
            found += [module] if module is not None and module not in found else []
    return found[1:]


def functions_of(facts: Facts, call: cst.Call) -> Iterator[Of]:
    """Yield the functions of modules beside the notebook that a call may run, with the facts of their modules.

    A class runs what makes its objects, and opens them in a ``with``; what one has made its method, or ``__call__``.
    """
    owner, method, made = facts.owner(call), facts.method(call), ["__init__", "__post_init__"]
    made += ["__enter__", "__exit__"] if isinstance(facts.parent(call), cst.WithItem) else []
    if owner is None or facts.is_of_import(owner):
        is_object = isinstance(call.func, cst.Name) and facts.bindings(call.func.value)
        ways = [(name, ["__call__"] if is_object else made, True) for name in facts.function_names(call)]
    else:
        ways = [(name, [method], False) for name in facts.origins(owner)]
        held = facts.origins(call.func) if facts.assigned(method) else ()  # self.stop(loss, model)
        ways += [(name, ["__call__"], True) for name in held]
    for name, methods, is_whole in ways:  # or a method alone
        own = facts
        for _ in range(5):  # `from .files import save`, in the module that is imported
            place, _, last = name.lstrip(".").rpartition(".")
            module = own.once(reader)(place) if place else None
            if module is None:  # Log.begin(folder), and what that has made
                name, methods, is_whole = place, [last] if methods is made else methods, False
                continue
            own, tops = module, [b.node for b in module.definitions(last) if b.scope is None]
            bound = (b for name in methods for b in own.definitions(name))
            found = [b.node for b in bound if b.scope in tops] + (tops if is_whole else [])
            yield from ((own, node) for node in found if isinstance(node, cst.FunctionDef))
            name = own.collected.imports.get(last, [""])[-1]


def called(facts: Facts, call: cst.Call) -> Iterator[Of]:
    """Yield the functions that a call runs, the notebook's own and those of modules beside it."""
    yield from ((facts, function) for function in facts.called_functions(call))
    yield from functions_of(facts, call)


@cache
def _search(wanted: Callable[[Facts, cst.Call], object]) -> Callable[[Facts], Solver[Of, bool]]:
    """Return what makes, for a notebook, what tells of a function whether it runs a ``wanted`` call."""

    def calls(of: Of) -> Iterator[tuple[Facts, cst.Call]]:
        facts, function = of
        return ((facts, call) for call in facts.calls_in(function.body))

    def leads(of: Of) -> Iterator[Of]:
        return chain.from_iterable(starmap(called, calls(of)))

    return lambda _: search(lambda of: any(starmap(wanted, calls(of))) or None, leads)


def runs(facts: Facts, call: cst.Call, wanted: Callable[[Facts, cst.Call], object]) -> bool:
    """Return whether a call runs a function of a module beside the notebook that runs a ``wanted`` call."""
    return any(map(facts.once(_search(wanted)).solve, functions_of(facts, call)))


def trains(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call trains, calls a model that its function is given, or changes its mode."""
    given, methods = facts.binding(call.func), libraries.COLLECTIVE_METHODS | libraries.LIGHTNING_METHODS
    is_given = given is not None and isinstance(given.node, cst.Param) and given.name != "cls"  # model(rows)
    is_for_all = facts.is_training(call) or facts.is_for_all(call)
    return is_given or is_for_all or facts.method(call) in methods | {"eval", "load_state_dict"}
