"""Follow an expression to the value that is written in the notebook, and a call to its arguments."""

from __future__ import annotations

import libcst as cst

from nb2ddp.analysis.kinds import Kinds
from nb2ddp.analysis.names import Names
from nb2ddp.analysis.tree import Tree
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Binding, root_of

_DEPTH = 12  # how many names, attributes and items are followed


class Values:
    """Answer what an expression or an argument is, as far as the notebook's text decides it."""

    def __init__(self, tree: Tree, names: Names, kinds: Kinds) -> None:
        self._tree = tree
        self._names = names
        self._kinds = kinds

    def value(self, node: cst.BaseExpression | None, depth: int = _DEPTH) -> cst.BaseExpression | None:
        """Return the literal, call or imported name that an expression stands for; None where that is open.

        Followed are names with one certain value, parameters, attributes of the notebook's own classes, items
        of dict literals, and conditional expressions whose condition is a literal; others are returned.
        """
        if node is None or depth == 0:
            return None
        match node:
            case cst.Name(value="True" | "False" | "None"):
                return node
            case cst.Name():
                binding = self._names.binding(node)
                if binding is None:
                    return node if self._names.is_imported(node.value) else None
                return self._bound(binding, depth)
            case cst.Attribute(value=value, attr=cst.Name(value=name)):
                root = root_of(node)
                if isinstance(root, cst.Name) and self.value(root, depth - 1) is root:
                    return node  # of a module: torch.float16
                return self._attribute(value, name, depth)
            case cst.Subscript(value=value, slice=[cst.SubscriptElement(slice=cst.Index(value=key))]):
                owner, text = self.value(value, depth - 1), cst_nodes.string_value(key)
                if text is None or not isinstance(owner, cst.Dict | cst.Call):
                    return None
                if isinstance(owner, cst.Call) and not self._is_dict_call(owner):
                    return None
                items = dict_items(owner)
                return self.value(items.get(text), depth - 1) if items is not None else None
            case cst.IfExp(test=test, body=body, orelse=orelse):
                decided = self.value(test, depth - 1)
                if not isinstance(decided, cst.Name) or decided.value not in ("True", "False", "None"):
                    return node
                return self.value(body if decided.value == "True" else orelse, depth - 1)
            case _:
                return node

    def _bound(self, binding: Binding, depth: int) -> cst.BaseExpression | None:
        if isinstance(binding.node, cst.Param):
            given = list(self._kinds.given(binding))
            if not given and isinstance(binding.node.default, cst.BaseExpression):
                return self.value(binding.node.default, depth - 1)
            values = [self.value(value, depth - 1) for value in given]
            same = len({cst_nodes.code_of(value) for value in values if value is not None}) == 1
            return values[0] if same and None not in values else None
        if binding.index is not None or self._names.is_changed(binding):
            return None
        return self.value(binding.value, depth - 1)

    def _attribute(self, owner: cst.BaseExpression, name: str, depth: int) -> cst.BaseExpression | None:
        """Follow ``Config.x`` and ``config.x`` to ``x = ...`` in the body of the notebook's own class."""
        called = self.value(owner, depth - 1) if not isinstance(owner, cst.Name) else owner
        binding = self._names.binding(called) if isinstance(called, cst.Name) else None
        if binding is not None and isinstance(binding.value, cst.Call):  # an instance
            if binding.value.args or not isinstance(binding.value.func, cst.Name):
                return None
            binding = self._names.binding(binding.value.func)
        own = binding.node if binding is not None else None
        fields = [b for b in self._names.bindings(name) if b.scope is own and isinstance(own, cst.ClassDef)]
        if len(fields) != 1 or name in self._set_attributes():
            return None
        return self.value(fields[0].value, depth - 1)

    def _set_attributes(self) -> set[str]:
        return {target.attr.value for target in self._tree.collected.attribute_targets}

    def _is_dict_call(self, call: cst.Call) -> bool:
        return self._names.qualified(call.func) == "dict" and all(a.keyword is not None for a in call.args)

    def argument(self, call: cst.Call, name: str) -> tuple[bool, cst.BaseExpression | None]:
        """Return whether a call may get ``name``, and the expression that it gets, also through ``**x``.

        ``(True, None)``: it may, and what it gets cannot be seen.
        """
        if (given := cst_nodes.keyword_of(call, name)) is not None:
            return True, given
        for unpacked in self._kinds.star_dicts(call):
            items = dict_items(unpacked) if unpacked is not None else None
            if items is None:
                return True, None
            if name in items:
                return True, items[name]
        return False, None


def dict_items(node: cst.Dict | cst.Call) -> dict[str, cst.BaseExpression] | None:
    """Return the items of a dict literal, or a call's keyword arguments; None where a key is no literal."""
    if isinstance(node, cst.Call):
        return {
            argument.keyword.value: argument.value for argument in node.args if argument.keyword is not None
        }
    items: dict[str, cst.BaseExpression] = {}
    for element in node.elements:
        key = cst_nodes.string_value(element.key) if isinstance(element, cst.DictElement) else None
        if key is None:
            return None
        items[key] = element.value
    return items
