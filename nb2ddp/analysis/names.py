"""Resolve names: bindings, loads, imports, and the dotted name that an expression stands for.

Names are followed as a notebook runs: cell after cell, top to bottom, the last binding before a use
wins. Inside a function its own bindings come first, then the module's.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.tree import Tree
from nb2ddp.source.cells import Binding, Load, Statement, imported_modules, root_of


class Names:
    """Answer what a name is bound to, where it is read, and what was imported under it."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._collected = tree.collected
        self._load_orders = [load.order for load in self._collected.loads]

    # ---- bindings -------------------------------------------------------------------------------

    @cached_property
    def bound_names(self) -> frozenset[str]:
        """Collect every name that the notebook binds anywhere, imports included."""
        return frozenset(self._collected.bindings) | frozenset(self._collected.imports)

    def bindings(self, name: str) -> Sequence[Binding]:
        """Return all bindings of a name, in order; imports are not among them."""
        return self._collected.bindings.get(name, ())

    def binding(self, name: cst.Name) -> Binding | None:
        """Return the binding that a use of a name sees: the last live one before it, inner scopes first."""
        tree = self._tree
        here = tree.order(name)
        candidates = self.bindings(name.value)
        own = scope = tree.scope(name)
        while scope is not None:
            local = [b for b in candidates if b.scope is scope]
            if local and (scope is own or not isinstance(scope, cst.ClassDef)):  # methods do not see these
                before = [b for b in local if b.order < here]
                return (before or local)[-1]
            scope = tree.scope(scope)
        module_level = [b for b in candidates if b.scope is None and not tree.is_dead(b.node)]
        if own is not None:
            return module_level[-1] if module_level else None
        before = [b for b in module_level if b.order < here and not tree.contains(_evaluated(b.node), name)]
        return before[-1] if before else None

    def binds_in(self, node: cst.CSTNode) -> frozenset[str]:
        """Collect the module-level names that get a value inside ``node``, imports included."""
        start, end = self._tree.span(node)
        return frozenset(
            name
            for name, bindings in self._collected.bindings.items()
            if any(start <= b.order <= end and b.scope is None for b in bindings)
        ) | frozenset(
            i.name for i in self._collected.import_orders if start <= i.order <= end and i.scope is None
        )

    def changes_in(self, node: cst.CSTNode) -> frozenset[str]:
        """Collect the names whose list, dict or set is changed in place inside ``node``."""
        return frozenset(load.name for load in self._loads_in(node) if self._changes(load.node))

    def is_changed(self, binding: Binding) -> bool:
        """Return whether a name may have another value, or be changed in place, before it is used."""
        others = [b for b in self.bindings(binding.name) if b.scope is binding.scope and b is not binding]
        if any(not self._tree.is_certain(b.node) for b in (binding, *others)) and others:
            return True
        return any(load.name == binding.name and self._changes(load.node) for load in self._collected.loads)

    def _changes(self, name: cst.Name) -> bool:
        """Match ``x["key"] = 1``, ``x.update(...)`` and ``x |= ...``."""
        around = self._tree.parent(name)
        if isinstance(around, cst.Subscript):
            target = self._tree.parent(around)
            return isinstance(target, cst.AssignTarget | cst.AugAssign | cst.Del)
        if isinstance(around, cst.Attribute):
            return around.attr.value in libraries.CHANGING_METHODS
        return isinstance(around, cst.AugAssign) and around.target is name

    # ---- loads ----------------------------------------------------------------------------------

    @cached_property
    def loaded_names(self) -> frozenset[str]:
        """Collect every name that the notebook reads anywhere."""
        return frozenset(load.name for load in self._collected.loads)

    @property
    def name_loads(self) -> Iterator[cst.Name]:
        """Yield every place that reads a name, in order."""
        return (load.node for load in self._collected.loads)

    def _loads_in(self, node: cst.CSTNode) -> Sequence[Load]:
        start, end = self._tree.span(node)
        low = bisect.bisect_left(self._load_orders, start)
        high = bisect.bisect_right(self._load_orders, end)
        return self._collected.loads[low:high]

    def loads_in(self, node: cst.CSTNode) -> frozenset[str]:
        """Collect the names that are read inside ``node``."""
        return frozenset(load.name for load in self._loads_in(node))

    def uses(self, name: str, within: cst.CSTNode) -> tuple[cst.Name, ...]:
        """List the places inside ``within`` that read ``name``."""
        return tuple(load.node for load in self._loads_in(within) if load.name == name)

    def is_read_after(self, name: str, node: cst.CSTNode, until: cst.CSTNode) -> bool:
        """Return whether ``name`` is read between the ends of two nodes."""
        start, end = self._tree.end(node), self._tree.end(until)
        return any(load.name == name and start < load.order <= end for load in self._collected.loads)

    def is_read_outside(self, name: str, *nodes: cst.CSTNode, until: Statement | None = None) -> bool:
        """Return whether what ``name`` gets inside ``nodes`` may be read elsewhere, up to ``until``."""
        tree = self._tree
        spans = [tree.span(node) for node in nodes]
        limit = tree.end(until) if until is not None else sys.maxsize

        def is_inside(order: int) -> bool:
            return any(start <= order <= end for start, end in spans)

        bound = [(b.order, b.node, b.scope) for b in self.bindings(name)]
        bound += [(i.order, i.node, i.scope) for i in self._collected.import_orders if i.name == name]
        bound.sort(key=lambda item: item[0], reverse=True)
        for load in self._collected.loads:
            if load.name != name or load.order > limit or is_inside(load.order):
                continue
            scope = tree.scope(load.node)
            if scope is not None and any(home is scope for _, _, home in bound):
                continue
            for order, node, home in bound:
                if home is not None or (scope is None and order > load.order):
                    continue
                if isinstance(node, cst.Assign | cst.AugAssign) and tree.contains(node, load.node):
                    continue  # `x = f(x)` reads the value before
                if is_inside(order):
                    return True
                if scope is None and tree.is_certain(node):
                    break  # it has another value by then
        return False

    # ---- imports --------------------------------------------------------------------------------

    def imports_of(self, package: str) -> tuple[cst.Import | cst.ImportFrom, ...]:
        """List the import statements that bring something of ``package``."""
        return tuple(
            node
            for node in self._collected.import_nodes
            if any(name.partition(".")[0] == package for name in imported_modules(node))
        )

    @cached_property
    def uses_unsloth(self) -> bool:
        """Tell whether Unsloth, or a fork that kept its names, is imported."""
        named = (target for targets in self._collected.imports.values() for target in targets)
        targets = [*self._collected.stars, *named]
        return any(target.partition(".")[0] in libraries.UNSLOTH_PACKAGES for target in targets)

    def qualified(self, node: cst.CSTNode) -> str:
        """Return the dotted name that an expression stands for, through imports; "" where it is none.

        ``FastLanguageModel.from_pretrained`` gives ``unsloth.FastLanguageModel.from_pretrained``, whatever
        it was imported as. A name that is not imported stands for itself.
        """
        match node:
            case cst.Name(value=name):
                targets = self._collected.imports.get(name)
                if targets:
                    return targets[-1]
                bindings = self.bindings(name)
                if not bindings:
                    for module in self._collected.stars:
                        if name in libraries.STAR_EXPORTS.get(module.partition(".")[0], ()):
                            return f"{module}.{name}"
                alias = bindings[0].value if len(bindings) == 1 else None
                if isinstance(alias, cst.Name | cst.Attribute):
                    root = root_of(alias)
                    if isinstance(root, cst.Name) and root.value in self._collected.imports:
                        return self.qualified(alias)  # Config = trl.SFTConfig
                return name
            case cst.Attribute(value=value, attr=attr):
                inner = self.qualified(value)
                return f"{inner}.{attr.value}" if inner else ""
            case _:
                return ""

    def our(self, name: str) -> str:
        """Return ``name``, prefixed with ``ddp_`` if the notebook already binds it to something else."""
        ours = libraries.OUR_IMPORTS.get(name, frozenset())
        imported = self._collected.imports.get(name, ())
        taken = name in self._collected.bindings or not ours.issuperset(imported)
        return f"ddp_{name}" if taken else name


def _evaluated(node: cst.CSTNode) -> cst.CSTNode:
    """Return the part of a binding that runs before its name has the value."""
    return node.iter if isinstance(node, cst.For) else node
