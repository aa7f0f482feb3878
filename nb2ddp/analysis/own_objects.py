"""Tell which objects an iteration of a loop has to itself: a name for an object from outside is that object."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.solver import Solver
from nb2ddp.source.cells import Binding, Scope

# Iterate over their argument, in its order.
PASSING = frozenset("enumerate tqdm zip list tuple reversed track".split())
LIST_METHODS = frozenset(
    "tolist to_list to_dict iterrows itertuples splitlines readlines split items keys values copy".split()
)
# Change nothing, of whatever class the object is.
HARMLESS_METHODS = (
    libraries.TEXT_METHODS | LIST_METHODS | frozenset("lstrip rstrip startswith endswith".split())
)
_CONTAINERS = cst.List | cst.Tuple | cst.Set | cst.Dict | cst.ListComp | cst.SetComp | cst.GeneratorExp
# An expression or a binding, and whether the items of its value are meant, not the value itself.
_Key = tuple[cst.BaseExpression | Binding, bool]


def called_on(facts: Facts, use: cst.Name) -> tuple[str, bool]:
    """Return the method that is called on a name's value or on a part of it, and whether the part is an item.

    The method is "" if there is none, and "()" if the value itself is called.
    """
    node: cst.CSTNode = use
    is_item = False
    while isinstance(around := facts.parent(node), cst.Attribute | cst.Subscript) and around.value is node:
        is_item |= isinstance(around, cst.Subscript)
        node = around
    if not isinstance(around, cst.Call) or around.func is not node:
        return "", is_item
    return (node.attr.value if isinstance(node, cst.Attribute) else "()"), is_item


class Objects:
    """Decide what values in a loop's body, and in the functions that it calls, are.

    ``is_steady`` tells of an expression outside the loop whether calling it, or its methods, changes nothing.
    """

    def __init__(
        self, facts: Facts, body: cst.CSTNode, is_steady: Callable[[cst.BaseExpression], bool]
    ) -> None:
        self._facts = facts
        self._body = body
        self._is_steady = is_steady
        self._from_outside = Solver[_Key, bool](self._steps, False)

    def is_own(self, node: cst.BaseExpression) -> bool:
        """Return whether an iteration has made the value of an expression, or its use changes nothing."""
        return not self._from_outside.solve((node, False))

    def holds_own(self, node: cst.BaseExpression) -> bool:
        """Return `is_own` of the items of a list, tuple, set or dict, as far as the notebook writes them out."""
        return not self._from_outside.solve((node, True))

    def is_current_item(self, binding: Binding) -> bool:
        """Return whether a binding is that of the loop's variable."""
        return isinstance(binding.node, cst.For) and binding.node.body is self._body

    def _steps(self, key: _Key) -> Generator[_Key, bool, bool]:
        node, items = key
        sources: Iterator[_Key | None]
        if isinstance(node, Binding):
            sources = self._of_binding(node, items)
        else:
            sources = self._of_items(node) if items else self._of_value(node)
        for source in sources:
            if source is None or (yield source):
                return True
        return False

    def _of_value(self, node: cst.BaseExpression) -> Iterator[_Key | None]:
        """Yield what a value is made of; None for an object from outside that use may change."""
        facts = self._facts
        match node:
            case cst.Name():
                part, bound = facts.comprehension(node), self._bound_inside(node)
                if part is not None:
                    yield part.iter, True
                elif bound:
                    yield from ((binding, False) for binding in bound)
                elif not self._is_steady(node):
                    yield None
            case cst.Attribute(value=value) | cst.NamedExpr(value=value):
                yield value, False
            case cst.Subscript(value=value):
                yield value, True
            case cst.IfExp(body=left, orelse=right) | cst.BooleanOperation(left=left, right=right):
                yield left, False
                yield right, False
            case cst.Call() if self._is_inside(node, facts.scope(node)):
                for function in facts.called_functions(node):
                    yield from ((value, False) for value in facts.returned(function))
            case cst.Call():
                if self._makes_object(node) and not self._is_steady(node):
                    yield None

    def _of_items(self, node: cst.BaseExpression) -> Iterator[_Key]:
        """Yield what the items of a value are made of."""
        match node:
            case cst.List(elements=elements) | cst.Tuple(elements=elements) | cst.Set(elements=elements):
                yield from (_item(element.value) for element in elements)
            case cst.Dict(elements=pairs):
                yield from (_item(pair.value) for pair in pairs)
            case cst.ListComp(elt=item) | cst.SetComp(elt=item) | cst.GeneratorExp(elt=item):
                yield _item(item)
            case cst.BinaryOperation(left=left, right=right) | cst.IfExp(body=left, orelse=right):
                yield left, True
                yield right, True
            case cst.Subscript(value=value):
                yield value, True
            case cst.Call(func=cst.Attribute(value=owner)) if self._facts.method(node) in LIST_METHODS:
                yield owner, True
            case cst.Call(args=arguments):
                if self._facts.qualified(node.func).rpartition(".")[2] in PASSING | {"sorted", "set", "iter"}:
                    yield from ((argument.value, True) for argument in arguments)
            case cst.Name() if self._facts.comprehension(node) is None:
                known = self._facts.binding(node)
                bound = self._bound_inside(node) or ([known] if known is not None else [])
                yield from ((binding, True) for binding in bound)

    def _of_binding(self, binding: Binding, items: bool) -> Iterator[_Key]:
        match binding.node:
            case cst.For(iter=iterated):
                yield iterated, True
            case cst.Param(default=default):
                for value in self._facts.given(binding):
                    if items or self._is_inside(value, self._facts.scope(value)):
                        yield value, items
                if default is not None and not items:
                    yield default, False
            case _ if binding.value is not None:
                yield binding.value, items or binding.index is not None

    def _bound_inside(self, name: cst.Name) -> list[Binding]:
        """List the bindings of a name in the loop, or in the function that it runs; none if it has others."""
        known = self._facts.binding(name)
        if known is None or not (self.is_current_item(known) or self._is_inside(known.node, known.scope)):
            return []
        same = [b for b in self._facts.bindings(name.value) if b.scope is known.scope]
        return [b for b in same if self.is_current_item(b) or self._is_inside(b.node, b.scope)]

    def _is_inside(self, node: cst.CSTNode, scope: Scope | None) -> bool:
        """Return whether the loop runs a node: in its body, or in a function that is not around it."""
        if self._facts.contains(self._body, node):
            return True
        return isinstance(scope, cst.FunctionDef) and not self._facts.contains(scope, self._body)

    def _makes_object(self, call: cst.Call) -> bool:
        """Match ``Ids()`` and ``lib.Ids()``: a class, to go by its name if it is not the notebook's."""
        last = self._facts.qualified(call.func).rpartition(".")[2]
        return last[:1].isupper() or any(isinstance(b.node, cst.ClassDef) for b in self._facts.bindings(last))


def _item(node: cst.BaseExpression) -> _Key:
    return node, isinstance(node, _CONTAINERS)
