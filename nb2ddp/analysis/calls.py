"""Resolve calls to the notebook's own functions and methods, and functions to the calls of them.

``x.fit()`` is resolved by the class that ``x`` was made from; where that cannot be seen, by a method name that
one class alone has. Labels at sources flow the same ways: `carries` asks whether a value is made of one that has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.kinds import Key, Kinds, part
from nb2ddp.analysis.solver import Solver, search
from nb2ddp.analysis.tree import grouped
from nb2ddp.source.cells import Binding, CodeCell, last_name, root_of

Class = cst.ClassDef | str
Functions = frozenset[cst.FunctionDef]
# Of the facts and a node: whether it has the label by itself; None where what it is made of decides.
Label = Callable[[Any, cst.CSTNode], bool | None]
# What goes through a generator at once.
_ITERATING = (cst.For, cst.CompFor, cst.Arg, cst.From, cst.StarredElement)
# Functions of modules that may call the methods of objects that they are given.
_TRAINS = re.compile(r"(?!.*split)(?:.*_)?(?:train|fit|learn|run)(?:_|$)")
_OF_FIELDS = frozenset({"object", "typing.NamedTuple"})
_OF_MODULES = frozenset("train eval to cuda cpu half float step state_dict parameters".split())


class Calls(Kinds):
    """Answer which functions of the notebook a call runs, and which calls run a function."""

    def __init__(self, cells: Sequence[CodeCell], *, is_loose: bool = False) -> None:
        """Read the cells. ``is_loose``: what cannot be followed counts as a call of whatever it may be."""
        super().__init__(cells)
        self._is_loose = is_loose
        self._functions: dict[cst.Call, tuple[cst.FunctionDef, ...]] = {}
        self._class_of = Solver[Key, frozenset[Class]](self._class_steps, frozenset())
        self._values = Solver[Key, Functions](self._value_steps, frozenset())
        self._labelled: dict[Label, Solver[cst.CSTNode, bool]] = {}
        self._of: dict[cst.CSTNode | frozenset[cst.CSTNode], Label] = {}

    # ---- labels ---------------------------------------------------------------------------------

    def carries(self, node: cst.CSTNode, label: Label) -> bool:
        """Return whether a value has a label, or is made of one that has: through names, attributes and functions.

        Answers are kept for each ``label``, so a caller that asks often passes the same function each time.
        """
        if label not in self._labelled:
            self._labelled[label] = search(partial(label, self), self._sources)
        return self._labelled[label].solve(node)

    def is_made_of(self, node: cst.CSTNode, source: cst.CSTNode | frozenset[cst.CSTNode]) -> bool:
        """Return whether a value is that of a ``source``, or of one of several, or made of it."""
        several = source if isinstance(source, frozenset) else {source}
        return self.carries(node, self._of.setdefault(source, lambda _, other: other in several or None))

    def _sources(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the nodes that make a value what it is."""
        match node:
            case cst.Name():
                yield from self._values_of(self.reaching(node))
                yield from self._put_into.get(node.value, ()) if self._is_loose else ()
                return
            case cst.Attribute(value=owner, attr=attr):
                yield from self.assigned(attr.value)
                yield from self._values_of(self.fields(attr.value))
                yield owner
                return
            case cst.Subscript():
                if values := list(self.item_values(node)):
                    yield from values
                    return
            case cst.Call():
                yield from self.called_functions(node)
            case cst.FunctionDef():
                yield from self.returned(node)
                yield from (asked.test for asked in self.nodes(cst.If, cst.While, within=node.body))
                return
        inside = [*node.children]
        for child in inside:
            if isinstance(child, cst.BaseExpression):
                yield child
            elif not isinstance(child, cst.BaseStatement):
                inside += child.children

    def _values_of(self, bindings: Iterable[Binding]) -> Iterator[cst.CSTNode]:
        for binding in bindings:
            if isinstance(binding.node, cst.AugAssign):
                yield binding.node.value
            elif isinstance(binding.node, cst.Param):
                yield from self.given(binding)
            elif isinstance(binding.node, cst.FunctionDef) and binding.node.decorators:
                yield binding.node  # a property
            elif isinstance(binding.node, cst.For | cst.CompFor) and self._is_loose:
                yield binding.node.iter
            elif binding.value is not None:
                yield from self._items_of(binding.value, binding.index)

    def _items_of(self, value: cst.BaseExpression, index: int | None) -> Iterator[cst.CSTNode]:
        """Yield what a name of ``a, b = value`` gets: of a tuple, and of functions that return one, its own part."""
        functions = self.called_functions(value) if isinstance(value, cst.Call) and index is not None else ()
        for whole in [result for function in functions for result in self.returned(function)] or [value]:
            parts = whole.elements if isinstance(whole, cst.Tuple | cst.List) and index is not None else ()
            yield parts[index].value if index is not None and index < len(parts) else whole

    # ---- functions ------------------------------------------------------------------------------

    def called_functions(self, call: cst.Call) -> Sequence[cst.FunctionDef]:
        """Return the functions that ``call`` calls, or passes out of sight: ``data.map(f)``, ``rl.train(agent)``."""
        if call not in self._functions:
            later = self._yields and not isinstance(self.parent(call), _ITERATING)  # [train(a), train(b)]
            found = [f for f in self.run_by(call.func) if not (later and self.is_generator(f))]
            of_library = any(not self.bases(made) <= _OF_FIELDS for made in self.classes_named(call.func))
            made = found or (self.fields_of(call) and not of_library)
            for argument in call.args if not (self._passes_on(call) or (made and not self._is_loose)) else ():
                found += self._passed(argument.value)
            if self.is_of_import(call.func) and _TRAINS.match(last_name(call.func)):
                given = (definition for a in call.args for definition in self._classes(a.value) or ())
                homes = [home for definition in given for home in self.lineage(definition)]
                methods = (f for home in homes for f in self.nodes(cst.FunctionDef, within=home.body))
                found += [f for f in methods if self.scope(f) in homes and f.name.value[:2] != "__"]
            if isinstance(call.func, cst.Attribute) and call.func.attr.value in ("send", "__next__"):
                found += self.iterated(call.func.value)
            self._functions[call] = tuple(dict.fromkeys(found))
        return self._functions[call]

    def callers(self, function: cst.FunctionDef) -> Sequence[cst.Call]:
        """Return the live calls that run a function of the notebook, in order."""
        return self._callers.get(function, ())

    @cached_property
    def _callers(self) -> dict[cst.FunctionDef, list[cst.Call]]:
        return grouped((f, call) for call in self.live_calls for f in self.called_functions(call))

    def sites(
        self,
        node: cst.CSTNode,
        stop: Callable[[cst.CSTNode], bool] = lambda _: False,
        callers: Callable[[cst.FunctionDef], Sequence[cst.Call]] | None = None,
    ) -> Iterator[cst.CSTNode]:
        """Yield a node, and the calls that lead to it through functions of the notebook, the nearest first.

        What leads to a site that ``stop`` matches is left out. ``callers`` may give fewer calls of a function, or more.
        """
        sites, seen = [node], {node}
        for site in sites:  # which grow meanwhile
            yield site
            function = self.around(site, cst.FunctionDef)
            if function is not None and not stop(site):
                found = [call for call in (callers or self.callers)(function) if call not in seen]
                seen.update(found)
                sites += found

    # ---- from a call to functions ---------------------------------------------------------------

    def run_by(self, function: cst.BaseExpression) -> Iterator[cst.FunctionDef]:
        """Yield the functions that a call of an expression runs."""
        name = ""
        if isinstance(function, cst.Attribute):
            name = function.attr.value
            yield from self._methods_of(function, by_name=True)
        elif isinstance(function, cst.Name):
            name = function.value
            for definition in self.classes_named(function):
                for made_by in ("__init__", "__post_init__"):
                    yield from self._methods(self.lineage(definition), made_by)
        if not self.definitions(name):  # self.stopper(loss)
            for definition in self._classes(function) or ():
                yield from self._methods(self.lineage(definition), "__call__")
        yield from sorted(self._values.solve(function), key=self.order)

    def _passed(self, value: cst.BaseExpression) -> Iterator[cst.FunctionDef]:
        if isinstance(value, cst.Attribute):
            yield from self._methods_of(value, by_name=False)
        if isinstance(value, cst.Name) or (isinstance(value, cst.Call) and self._passes_on(value)):
            yield from sorted(self._values.solve(value), key=self.order)
        else:
            yield from self.iterated(value)

    # ---- generators -----------------------------------------------------------------------------

    def is_generator(self, function: cst.FunctionDef) -> bool:
        """Return whether what iterates over the result of a function runs it, and no decorator does."""
        if not self._yields or function.decorators or function.asynchronous is not None:
            return False
        return any(self.around(node, cst.FunctionDef, cst.Lambda) is function for node in self._yields)

    @cached_property
    def _yields(self) -> list[cst.Yield]:
        return self.nodes(cst.Yield)

    def iterated(self, value: cst.BaseExpression) -> Iterator[cst.FunctionDef]:
        """Yield the generators of the notebook that run where an expression is iterated over."""
        if self._yields:
            yield from sorted(filter(self.is_generator, self._values.solve(value)), key=self.order)

    def _passes_on(self, call: cst.Call) -> bool:
        """Match ``partial(f, x)``: what calls its result runs ``f``."""
        return self.qualified(call.func) in libraries.PASSING_FUNCTIONS

    def _value_steps(self, key: Key) -> Generator[Key, Functions, Functions]:
        """Evaluate which functions a value may be: ``step`` of ``step = make_step(model)``, ``steps["train"]``."""
        sources: Iterable[Key] = ()
        found: Functions = frozenset()
        match key:
            case Binding(node=cst.FunctionDef() as function):
                return frozenset({function})
            case Binding(node=cst.Param()):
                sources = self.given(key)
            case Binding(node=cst.For(iter=iterated)):
                held = yield iterated
                listed = isinstance(self.bound(iterated), cst.List | cst.Tuple | cst.ListComp)
                return held if listed else frozenset(f for f in held if not self.is_generator(f))
            case Binding(value=cst.Call(func=func), index=int(place)):
                made_by = yield func
                sources = (part(value, place) for function in made_by for value in self.returned(function))
            case Binding(value=value, index=None):
                sources = () if value is None else (value,)
            case cst.Name():
                sources = [*self.reaching(key), *self._put_into.get(key.value, ())]
            case cst.List() | cst.Tuple() | cst.Set() | cst.Dict():
                sources = [element.value for element in key.elements]
            case cst.ListComp(elt=item) | cst.DictComp(value=item):
                sources = (item,)
            case cst.Attribute(attr=attr) if attr.value not in _OF_MODULES or self._classes(key.value):
                sources = [*self.assigned(attr.value), *self._put_into.get(attr.value, ())]
                sources += (b for b in self.definitions(attr.value) if self.is_put_into_class(b.node))
            case cst.Subscript():
                sources = [*self.item_values(key)] or (key.value,)
            case cst.IfExp(body=body, orelse=orelse):
                sources = (body, orelse)
            case cst.Call(args=args) if self._passes_on(key):
                sources = (args[0].value,) if args else ()
            case cst.Call(cst.Attribute(owner, cst.Name("items" | "values" | "pop" | "popleft"))):
                sources = (owner,)
            case cst.Call(cst.Name("enumerate" | "zip" | "list" | "tuple" | "reversed"), args):
                for argument in args:
                    found |= yield argument.value
                return frozenset(f for f in found if not self.is_generator(f))  # it goes through them
            case cst.Call(func=func):
                made_by = yield func
                if isinstance(func, cst.Attribute):
                    made_by |= frozenset(self._methods_of(func, by_name=False))
                sources = (value for function in made_by for value in self.returned(function))
                found = frozenset(filter(self.is_generator, made_by))
        for source in sources:
            found |= yield source
        return found

    @cached_property
    def _put_into(self) -> dict[str, list[cst.BaseExpression]]:
        """List by its name what a container gets: ``jobs.append(step)``, ``jobs["a"] = step``."""
        found = [(item.value.value, value) for item, value in self._items if isinstance(item.value, cst.Name)]
        for call in self.live_calls:
            match call:
                case cst.Call(cst.Attribute(owner, cst.Name("append")), [given]):
                    found.append((last_name(owner), given.value))
        return grouped(found)

    # ---- methods --------------------------------------------------------------------------------

    def _methods_of(self, attribute: cst.Attribute, *, by_name: bool) -> Iterator[cst.FunctionDef]:
        """Yield the methods that ``x.name`` may stand for."""
        name, owner = attribute.attr.value, attribute.value
        homes = (b.scope for b in self.definitions(name) if isinstance(b.node, cst.FunctionDef))
        scopes = [home for home in homes if isinstance(home, cst.ClassDef)]
        if not scopes:
            return
        around = self.around(owner, cst.ClassDef)
        if isinstance(owner, cst.Call) and isinstance(owner.func, cst.Name) and owner.func.value == "super":
            line = self.lineage(around)[1:] if around is not None else ()
            yield from self._methods(line, name)
            return
        if (classes := self._classes(owner)) is not None:
            for definition in classes:
                yield from self._methods(self.lineage(definition), name)
        elif by_name:
            of_any = self._is_loose and not isinstance(owner, cst.Attribute)
            if of_any if name in _OF_MODULES else len(scopes) == 1:
                yield from (method for scope in scopes for method in self._own(scope, name))

    def _own(self, definition: cst.ClassDef, name: str) -> list[cst.FunctionDef]:
        found = [b.node for b in self.definitions(name) if b.scope is definition]
        return [node for node in found if isinstance(node, cst.FunctionDef)]

    def _methods(self, line: Iterable[cst.ClassDef], name: str) -> Sequence[cst.FunctionDef]:
        """Return the method that the first of some classes has."""
        return next(filter(None, (self._own(home, name) for home in line)), ())

    # ---- the class of a value -------------------------------------------------------------------

    def _classes(self, value: cst.BaseExpression) -> list[cst.ClassDef] | None:
        """Return the notebook's classes that a value may be of: empty for a library's, None if unknown."""
        made = self._class_of.solve(value)
        own = sorted((node for node in made if isinstance(node, cst.ClassDef)), key=self.order)
        return own if made or self.kind(value) else None

    def _class_steps(self, key: Key) -> Generator[Key, frozenset[Class], frozenset[Class]]:
        """Evaluate the classes of a value; a name stands for one of a library."""
        sources: Iterable[Key | frozenset[str]] = ()
        match key:
            case cst.ClassDef():
                return frozenset({key})
            case cst.Name(value=name) if self.is_imported(name):
                return frozenset({name})
            case cst.Call(func=cst.Attribute(value=owner, attr=attr)):
                sources = [owner] if attr.value in libraries.MODEL_METHODS else self._of_library(key.func)
            case cst.Attribute(attr=attr):
                sources = [*self.assigned(attr.value)] or self._of_library(key)
            case Binding(node=cst.Param(), scope=cst.FunctionDef() as function) if (
                home := self.around(function, cst.ClassDef)
            ) is self.scope(function) and home is not None:
                if function.params.params[:1] == (key.node,):  # self, cls
                    return frozenset(d for d in self.nodes(cst.ClassDef) if home in self.lineage(d))
                sources = self.given(key)
            case Binding(node=cst.ClassDef() as definition):
                return frozenset({definition})
            case Binding(value=cst.Call(cst.Name(name)), index=int()) if self.definitions(name):
                sources = self._made_of(key)
            case Binding(index=int()) | cst.Subscript():
                pass
            case _:
                sources = self._made_of(key)
        found: frozenset[Class] = frozenset()
        for source in sources:
            found |= source if isinstance(source, frozenset) else (yield source)
        return found

    def _of_library(self, node: cst.BaseExpression) -> Sequence[Key]:
        return [root_of(node)] if self.is_of_import(node) else []
