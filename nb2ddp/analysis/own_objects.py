"""Tell which objects an iteration of a loop has to itself: a name for an object from outside is that object."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import libcst as cst
from libcst import matchers

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
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
_Seen = set[Binding | cst.CSTNode]


def in_comprehension(facts: Facts, use: cst.Name) -> bool:
    """Return whether a name is the variable of a comprehension around it."""
    return _gone_through(facts, use) is not None


def _gone_through(facts: Facts, use: cst.Name) -> cst.BaseExpression | None:
    """Return ``rows`` for ``x`` of ``[f(x) for x in rows]``; None for a name that no comprehension binds."""
    for parent in facts.parents(use):
        part = parent.for_in if isinstance(parent, cst.BaseComp) else None
        while part is not None:
            if use.value in _targets(part.target) and not facts.contains(part.iter, use):
                return part.iter
            part = part.inner_for_in
        if isinstance(parent, cst.BaseSmallStatement):
            return None
    return None


def _targets(target: cst.BaseExpression) -> set[str]:
    match target:
        case cst.Name(value=name):
            return {name}
        case cst.Tuple(elements=elements) | cst.List(elements=elements):
            return {name for element in elements for name in _targets(element.value)}
        case _:
            return set()


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
        self._seen: _Seen = set()  # what is_own has looked at
        self._held: _Seen = set()

    def is_own(self, node: cst.BaseExpression) -> bool:
        """Return whether an iteration has made the value of an expression, or its use changes nothing."""
        self._seen, self._held = set(), set()
        return self._is_own(node)

    def holds_own(self, node: cst.BaseExpression) -> bool:
        """Return `is_own` of the items of a list, tuple, set or dict, as far as the notebook writes them out."""
        self._seen, self._held = set(), set()
        return self._holds_own(node)

    def is_current_item(self, binding: Binding) -> bool:
        """Return whether a binding is that of the loop's variable."""
        return isinstance(binding.node, cst.For) and binding.node.body is self._body

    def _is_own(self, node: cst.BaseExpression) -> bool:
        match node:
            case cst.Name():
                if (items := _gone_through(self._facts, node)) is not None:
                    return self._holds_own(items)
                bound = self._bound_inside(node)
                return all(map(self._is_bound_own, bound)) if bound else self._is_steady(node)
            case cst.Attribute(value=value) | cst.NamedExpr(value=value):
                return self._is_own(value)
            case cst.Subscript(value=value):
                return self._holds_own(value)
            case cst.IfExp(body=left, orelse=right) | cst.BooleanOperation(left=left, right=right):
                return self._is_own(left) and self._is_own(right)
            case cst.Call():
                if self._is_inside(node, self._facts.scope(node)):
                    return all(map(self._is_own, self._returned(node)))
                return not self._makes_object(node) or self._is_steady(node)
            case _:
                return True

    def _is_bound_own(self, binding: Binding) -> bool:
        if binding in self._seen:
            return True
        self._seen.add(binding)
        match binding.node:
            case cst.For(iter=items):
                return self._holds_own(items)
            case cst.Param(default=default):
                given = [v for v in self._facts.given(binding) if self._is_inside(v, self._facts.scope(v))]
                return all(map(self._is_own, given if default is None else [*given, default]))
        if binding.value is None:
            return True
        return self._is_own(binding.value) if binding.index is None else self._holds_own(binding.value)

    def _holds_own(self, node: cst.BaseExpression) -> bool:
        match node:
            case cst.List(elements=elements) | cst.Tuple(elements=elements) | cst.Set(elements=elements):
                return self._are_own(element.value for element in elements)
            case cst.Dict(elements=pairs):
                return self._are_own(pair.value for pair in pairs)
            case cst.ListComp(elt=item) | cst.SetComp(elt=item) | cst.GeneratorExp(elt=item):
                return self._are_own([item])
            case cst.BinaryOperation(left=left, right=right) | cst.IfExp(body=left, orelse=right):
                return self._holds_own(left) and self._holds_own(right)
            case cst.Subscript(value=value):
                return self._holds_own(value)
            case cst.Call(func=cst.Attribute(value=owner)) if self._facts.method(node) in LIST_METHODS:
                return self._holds_own(owner)
            case cst.Call(args=arguments):
                last = self._facts.qualified(node.func).rpartition(".")[2]
                return last not in PASSING | {"sorted", "set", "iter"} or all(
                    self._holds_own(argument.value) for argument in arguments
                )
            case cst.Name() if not in_comprehension(self._facts, node):
                known = self._facts.binding(node)
                bound = self._bound_inside(node) or ([known] if known is not None else [])
                return all(map(self._holds_bound, bound))
        return True

    def _holds_bound(self, binding: Binding) -> bool:
        if binding in self._held:
            return True
        self._held.add(binding)
        match binding.node:
            case cst.For(iter=items):
                return self._holds_own(items)
            case cst.Param():
                return all(map(self._holds_own, self._facts.given(binding)))
        return binding.value is None or self._holds_own(binding.value)

    def _are_own(self, items: Iterable[cst.BaseExpression]) -> bool:
        return all(
            self._holds_own(item) if isinstance(item, _CONTAINERS) else self._is_own(item) for item in items
        )

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

    def _returned(self, call: cst.Call) -> list[cst.BaseExpression]:
        """List what the notebook's functions return to a call."""
        values: list[cst.BaseExpression] = []
        for function in self._facts.called_functions(call):
            if function in self._seen:
                continue
            self._seen.add(function)
            for found in matchers.findall(function.body, matchers.Return()):
                value = found.value if isinstance(found, cst.Return) else None
                values += [value] if value is not None else []
        return values

    def _makes_object(self, call: cst.Call) -> bool:
        """Match ``Ids()`` and ``lib.Ids()``: a class, to go by its name if it is not the notebook's."""
        last = self._facts.qualified(call.func).rpartition(".")[2]
        return last[:1].isupper() or any(isinstance(b.node, cst.ClassDef) for b in self._facts.bindings(last))
