"""Find the values that a use of a name may see: those of earlier assignments that a branch does not rule out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.values import dict_items
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Binding

_MANY = 12  # values that a use of a name may see
_MOST = 40  # assignments of one name that are looked at
_Target = TypeVar("_Target", bound=cst.CSTNode)


def bindings(facts: Facts, name: cst.Name) -> tuple[Binding, ...]:
    """Return the assignments that a use of a name may see, the last first."""
    last = facts.binding(name)
    candidates = _candidates(facts, name, last) if last is not None else []
    if last is None or len(candidates) > _MOST:
        return ()
    found: list[Binding] = []
    for binding in candidates:
        found.append(binding)
        if _is_certain(facts, binding, name) and not _is_in_branch(facts, binding, name):
            break
    kept = [b for b in found if not _falls_back(facts, b)] or found or [last]
    return tuple(kept) if len(kept) <= _MANY else ()


def _candidates(facts: Facts, name: cst.Name, last: Binding) -> list[Binding]:
    """Return the assignments of a name in its scope that may come before a use, the last first."""
    here = facts.order(name)
    same = [b for b in facts.bindings(name.value) if b.scope is last.scope and not facts.is_dead(b.node)]
    same.sort(key=lambda b: b.order, reverse=True)
    if facts.scope(name) is not last.scope:
        return same  # a function may run at any time
    loops = [p for p in facts.parents(name) if isinstance(p, cst.For | cst.While)]
    loops = [loop for loop in loops if facts.scope(loop) is last.scope]
    again = [b for b in same if b.order > here and loops and facts.contains(loops[-1], b.node)]
    before = [b for b in same if b.order < here and not _is_made_of(facts, b, name)]
    return [*again, *before]


def _is_made_of(facts: Facts, binding: Binding, name: cst.Name) -> bool:
    """Match ``x`` on the right of ``x = f(x)``."""
    return isinstance(binding.node, cst.Assign | cst.AnnAssign | cst.AugAssign) and facts.contains(
        binding.node, name
    )


def _is_in_branch(facts: Facts, binding: Binding, name: cst.Name) -> bool:
    """Return whether an assignment stands below an ``if`` that is not around the use as well."""
    inner: cst.CSTNode = binding.node
    for parent in facts.parents(binding.node):
        if isinstance(parent, cst.FunctionDef | cst.ClassDef | cst.Lambda):
            break
        if isinstance(parent, cst.If) and inner is not parent.test and not facts.contains(inner, name):
            return True
        inner = parent
    return False


def _is_certain(facts: Facts, binding: Binding, name: cst.Name) -> bool:
    """Return whether an assignment has run before a use, apart from the tests above it."""
    if isinstance(binding.node, cst.AugAssign) or binding.order > facts.order(name):
        return False
    for parent in facts.parents(binding.node):
        if isinstance(parent, cst.For | cst.While | cst.ExceptHandler) and not facts.contains(parent, name):
            return False
        if isinstance(parent, cst.FunctionDef | cst.ClassDef | cst.Lambda):
            break
    return True


def _falls_back(facts: Facts, binding: Binding) -> bool:
    """Match ``rank = 0`` below ``except KeyError:``, to which a rank does not come."""
    return any(isinstance(parent, cst.ExceptHandler) for parent in facts.parents(binding.node))


def attribute_values(facts: Facts, name: str) -> Iterator[cst.BaseExpression]:
    """Yield what the notebook assigns to attributes of a name: of ``self.rank = ...``."""
    assigned: list[tuple[cst.Attribute, cst.BaseExpression]] = facts.once(_assigned)
    return (value for target, value in assigned if target.attr.value == name)


def item_values(facts: Facts, item: cst.Subscript) -> Iterator[cst.BaseExpression]:
    """Yield what the notebook gives an item with this key: in ``cfg["rank"] = ...``, and in ``cfg = {"rank": ...}``."""
    key = _key(item)
    if key is None:
        return
    owner = cst_nodes.code_of(item.value)
    assigned: list[tuple[cst.Subscript, cst.BaseExpression]] = facts.once(_assigned_items)
    for target, value in assigned:
        if _key(target) == key and cst_nodes.code_of(target.value) == owner:
            yield value
    for binding in facts.bindings(owner):
        begun = binding.value
        if isinstance(begun, cst.Dict) or (
            isinstance(begun, cst.Call) and facts.qualified(begun.func) == "dict"
        ):
            items = dict_items(begun) or {}
            if key in items:
                yield items[key]


def _key(item: cst.Subscript) -> str | None:
    """Return the text between the brackets of ``cfg["rank"]``; None for another index."""
    match item.slice:
        case [cst.SubscriptElement(slice=cst.Index(value=key))]:
            return cst_nodes.string_value(key)
    return None


def _assigned_items(facts: Facts) -> list[tuple[cst.Subscript, cst.BaseExpression]]:
    """List the items that are assigned to by a text, with their values."""
    items = []
    for string in facts.strings:
        index = facts.parent(string)
        element = facts.parent(index) if isinstance(index, cst.Index) else None
        item = facts.parent(element) if element is not None else None
        if isinstance(item, cst.Subscript) and not facts.is_dead(item):
            items.append(item)
    return list(_with_values(facts, items))


def _assigned(facts: Facts) -> list[tuple[cst.Attribute, cst.BaseExpression]]:
    """List the attributes that are assigned to, with their values."""
    return list(_with_values(facts, [node for node in facts.attributes if not facts.is_dead(node)]))


def _with_values(facts: Facts, targets: Iterable[_Target]) -> Iterator[tuple[_Target, cst.BaseExpression]]:
    """Yield the nodes that are assigned to, by themselves or in a tuple, with their values."""
    for node in targets:
        around = facts.parent(node)
        if isinstance(around, cst.AssignTarget) and isinstance(assign := facts.parent(around), cst.Assign):
            yield node, assign.value
        elif isinstance(around, cst.Element) and isinstance(names := facts.parent(around), cst.Tuple):
            target = facts.parent(names)
            assign = facts.parent(target) if isinstance(target, cst.AssignTarget) else None
            values = assign.value if isinstance(assign, cst.Assign) else None
            if isinstance(values, cst.Tuple) and len(values.elements) == len(names.elements):
                yield node, values.elements[list(names.elements).index(around)].value


def passed(facts: Facts, binding: Binding) -> Iterator[cst.BaseExpression]:
    """Yield what calls pass for a parameter of a method, or of a function inside another one."""
    function = binding.scope
    if not isinstance(function, cst.FunctionDef):
        return
    home = facts.scope(function)
    names = [param.name.value for param in function.params.params]
    called = function.name.value
    if isinstance(home, cst.ClassDef):
        del names[:1]
        called = home.name.value if called == "__init__" else called
    for call in facts.callers(function):
        if cst_nodes.code_of(call.func).rpartition(".")[2] != called:
            continue  # it is passed on
        unnamed = [a.value for a in call.args if a.keyword is None and not a.star]
        given = facts.keyword(call, binding.name)
        if given is None and binding.name in names[: len(unnamed)]:
            given = unnamed[names.index(binding.name)]
        if given is not None:
            yield given
