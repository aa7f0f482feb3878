"""Resolve names: bindings, loads, imports, and the dotted name that an expression stands for.

Names are followed as a notebook runs: cell after cell, top to bottom, the last binding before a use
wins. Inside a function its own bindings come first, then the module's.
"""

from __future__ import annotations

import bisect
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.tree import Tree, grouped
from nb2ddp.source.cells import Binding, CodeCell, Imported, Load, Scope, Statement, imported_modules, root_of
from nb2ddp.source.cst_nodes import code_of


class Names(Tree):
    """Answer what a name is bound to, where it is read, and what was imported under it."""

    def __init__(self, cells: Sequence[CodeCell]) -> None:
        super().__init__(cells)
        self._by_home: dict[str, dict[Scope | None, list[Binding]]] = {}
        self._qualified: dict[cst.CSTNode, str] = {}

    # ---- bindings -------------------------------------------------------------------------------

    @cached_property
    def bound_names(self) -> frozenset[str]:
        """Collect every name that the notebook binds anywhere, imports included."""
        return frozenset(self.collected.bindings) | frozenset(self.collected.imports)

    def bindings(self, name: str) -> Sequence[Binding]:
        """Return all bindings of a name, in order; imports are not among them."""
        return self.collected.bindings.get(name, ())

    def binding(self, name: cst.CSTNode | None) -> Binding | None:
        """Return the binding that a use of a name sees: the last live one before it, inner scopes first.

        None for what is no name, and where an import comes last, or is one of an inner scope.
        """
        if not isinstance(name, cst.Name):
            return None
        here = self.order(name)
        homes, imports = self._homes(name.value), self._imported.get(name.value, ())
        own = scope = self.scope(name)
        while scope is not None:
            local = homes.get(scope)
            if local and (scope is own or not isinstance(scope, cst.ClassDef)):  # methods do not see these
                return local[bisect.bisect_left(local, here, key=_order) - 1]  # the last if none is before
            if any(i.scope is scope for i in imports):
                return None
            scope = self.scope(scope)
        seen = (i for i in imports if i.scope is None and not self.is_dead(i.node))
        last = max((i.order for i in seen if i.order < here), default=-1)
        live = homes.get(None, ())
        if own is not None:
            return live[-1] if live and live[-1].order > last else None
        for index in range(bisect.bisect_left(live, here, key=_order) - 1, -1, -1):
            node = live[index].node
            if not self.contains(node.iter if isinstance(node, cst.For) else node, name):
                return live[index] if live[index].order > last else None
        return None

    def _homes(self, name: str) -> dict[Scope | None, list[Binding]]:
        """Sort the bindings of a name by scope and order; at module level only live ones."""
        if name not in self._by_home:
            bindings = sorted(self.bindings(name), key=_order)
            live = (b for b in bindings if b.scope is not None or not self.is_dead(b.node))
            self._by_home[name] = grouped((binding.scope, binding) for binding in live)
        return self._by_home[name]

    @cached_property
    def _definitions(self) -> dict[str, list[Binding]]:
        named = (b for bs in self.collected.bindings.values() for b in bs)
        return grouped((b.name, b) for b in named if isinstance(b.node, cst.FunctionDef | cst.ClassDef))

    def definitions(self, name: str) -> Sequence[Binding]:
        """Return the bindings of a name by ``def`` and ``class``, in order, methods included."""
        return self._definitions.get(name, ())

    def classes_named(self, node: cst.BaseExpression) -> list[cst.ClassDef]:
        """Return the class of the notebook that an expression names; none where it names another thing."""
        found = self.definitions(node.value) if isinstance(node, cst.Name) else ()
        classes = [b.node for b in found if isinstance(b.node, cst.ClassDef)]
        return classes[-1:]  # a later cell defines the class anew

    def is_put_into_class(self, function: cst.CSTNode) -> bool:
        """Match ``@add_to_class(Net) def forward(self, x)``: a decorator makes a method of a cell's function."""
        if not isinstance(function, cst.FunctionDef) or self.scope(function) is not None:
            return False
        first = [param.name.value for param in function.params.params[:1]]
        return bool(function.decorators) and first == ["self"]

    def lineage(self, definition: cst.ClassDef) -> list[cst.ClassDef]:
        """List a class, and those of the notebook that it derives from, as methods are looked for."""
        line = [definition]
        for place, home in enumerate(line):  # which grows meanwhile
            bases = [found for base in home.bases for found in self.classes_named(base.value)]
            line[place + 1 : place + 1] = [found for found in bases if found not in line]
        return line

    def fields_of(self, call: cst.Call) -> list[str]:
        """List the names under which a dataclass, a ``namedtuple`` or a namespace keeps what a call gives it."""
        binding = self.binding(call.func)
        match binding and binding.value:
            case cst.Call(func, [_, names, *_]) if self.qualified(func) == "collections.namedtuple":
                return re.findall(r"\w+", code_of(names.value))
        if self.qualified(call.func) in ("types.SimpleNamespace", "argparse.Namespace"):
            return [argument.keyword.value for argument in call.args if argument.keyword is not None]
        line = [home for made in self.classes_named(call.func) for home in self.lineage(made)]
        fields = [(home, f) for home in reversed(line) for f in self.nodes(cst.AnnAssign, within=home.body)]
        own = (f for home, f in fields if self.scope(f) is home)
        return [code_of(f.target) for f in own if "ClassVar" not in code_of(f.annotation.annotation)]

    @cached_property
    def _module_level(self) -> list[tuple[int, str]]:
        """List all bindings and imports at module level: their orders, each with its name."""
        found = [(b.order, b.name) for bs in self.collected.bindings.values() for b in bs if b.scope is None]
        found += [(i.order, i.name) for i in self.collected.import_orders if i.scope is None]
        return sorted(found)

    def binds_in(self, node: cst.CSTNode) -> frozenset[str]:
        """Collect the module-level names that get a value inside ``node``, imports included."""
        return frozenset(name for _, name in self.part(node, self._module_level, lambda pair: pair[0]))

    def names_at(self, node: cst.CSTNode) -> frozenset[str]:
        """Collect the names that have a value where ``node`` runs: in a function, all that the notebook binds."""
        if self.scope(node) is not None:
            return self.bound_names
        before = bisect.bisect_left(self._module_level, (self.order(node),))
        known = frozenset(name for _, name in self._module_level[:before])
        loops = [above for above in self.parents(node) if isinstance(above, cst.For | cst.While)]
        return known.union(*map(self.binds_in, loops))  # a later round has what an earlier one binds

    @cached_property
    def _in_order(self) -> list[Binding]:
        return sorted((b for bs in self.collected.bindings.values() for b in bs), key=_order)

    def bindings_in(self, node: cst.CSTNode) -> Sequence[Binding]:
        """Return the bindings inside ``node``, in order; imports are not among them."""
        return self.part(node, self._in_order, _order)

    def changes_in(self, node: cst.CSTNode) -> frozenset[str]:
        """Collect the names whose list, dict or set is changed in place inside ``node``."""
        return frozenset(load.name for load in self._loads_in(node) if self.changes(load.node))

    def is_changed(self, binding: Binding) -> bool:
        """Return whether a name may have another value, or be changed in place, before it is used."""
        if binding.name in self._changed_names:
            return True
        beside = [b for b in self.bindings(binding.name) if b.scope is binding.scope]
        return len(beside) > 1 and not all(self.is_certain(b.node) for b in beside)

    @cached_property
    def _changed_names(self) -> frozenset[str]:
        return frozenset(load.name for load in self.collected.loads if self.changes(load.node))

    def changes(self, name: cst.BaseExpression) -> bool:
        """Match ``x["key"] = 1``, ``x.update(...)``, ``heappop(x)`` and ``x |= ...``, of ``x`` or of an item of it."""
        item = self.whole(name, cst.Subscript)
        around = self.parent(item)
        if item is not name and isinstance(around, cst.AssignTarget | cst.AugAssign | cst.Del):
            return True
        if isinstance(around, cst.Attribute):
            return around.attr.value in libraries.CHANGING_METHODS
        if isinstance(around, cst.Arg):
            call = self.parent(around)
            taker = call if isinstance(call, cst.Call) and call.args[0] is around else None
            return taker is not None and self.qualified(taker.func) in libraries.CHANGING_FUNCTIONS
        return isinstance(around, cst.AugAssign) and around.target is name

    def whole(self, node: cst.CSTNode, *through: type[cst.Subscript] | type[cst.Attribute]) -> cst.CSTNode:
        """Return what is assigned to or changed where it begins with a node: ``x["a"].b``; nothing that is called."""
        while isinstance(around := self.parent(node), through) and not self.called(around):
            node = around
        return node

    # ---- loads ----------------------------------------------------------------------------------

    @cached_property
    def loaded_names(self) -> frozenset[str]:
        """Collect every name that the notebook reads anywhere."""
        return frozenset(load.name for load in self.collected.loads)

    @property
    def name_loads(self) -> Iterator[cst.Name]:
        """Yield every place that reads a name, in order."""
        return (load.node for load in self.collected.loads)

    def _loads_in(self, node: cst.CSTNode) -> Sequence[Load]:
        return self.part(node, self.collected.loads, _order)

    def loads_in(self, node: cst.CSTNode) -> frozenset[str]:
        """Collect the names that are read inside ``node``."""
        return frozenset(load.name for load in self._loads_in(node))

    @cached_property
    def _loads_of(self) -> dict[str, list[Load]]:
        return grouped((load.name, load) for load in self.collected.loads)

    def loads_of(self, name: str) -> Iterator[cst.Name]:
        """Yield the places that read ``name``, in order."""
        return (load.node for load in self._loads_of.get(name, ()))

    def uses(self, name: str, within: cst.CSTNode) -> tuple[cst.Name, ...]:
        """List the places inside ``within`` that read ``name``."""
        return tuple(load.node for load in self.part(within, self._loads_of.get(name, []), _order))

    def is_read_outside(self, name: str, *nodes: cst.CSTNode, until: Statement | None = None) -> bool:
        """Return whether what ``name`` gets inside ``nodes`` may be read elsewhere, up to ``until``."""
        spans = [self._spans[node] for node in nodes]

        def is_inside(order: int) -> bool:
            return any(start <= order <= end for start, end in spans)

        limit = self.end(until) if until is not None else sys.maxsize
        bound: list[Binding | Imported] = [*self.bindings(name), *self._imported.get(name, ())]
        bound.sort(key=_order)
        homes = {item.scope for item in bound}
        # Going back from a use, the first of these decides which value it reads.
        deciding = [b for b in bound if b.scope is None and (is_inside(b.order) or self.is_certain(b.node))]
        if not any(is_inside(b.order) for b in deciding):
            return False
        above = [of for node in nodes for of in self.parents(node) if isinstance(of, cst.For | cst.While)]
        others = [b.order for b in bound if b.scope is None and not is_inside(b.order)]
        for load in self._loads_of.get(name, ()):
            scope = self.scope(load.node)
            if load.order > limit or is_inside(load.order) or (scope is not None and scope in homes):
                continue
            if scope is not None:
                return True  # a function may run while the name has this value
            begin = min(
                (self._spans[of][0] for of in above if self.contains(of, load.node)), default=load.order
            )
            if begin < load.order < spans[0][0] and not any(begin < order <= load.order for order in others):
                return True  # in a loop's next round
            for item in reversed(deciding[: bisect.bisect_right(deciding, load.order, key=_order)]):
                if is_inside(item.order):
                    return True
                of_itself = isinstance(item.node, cst.Assign | cst.AugAssign)
                if not (of_itself and self.contains(item.node, load.node)):
                    break  # unlike `x = f(x)`, which reads the value before
        return False

    # ---- imports --------------------------------------------------------------------------------

    @cached_property
    def _imported(self) -> dict[str, list[Imported]]:
        return grouped((item.name, item) for item in self.collected.import_orders)

    def is_imported(self, name: str) -> bool:
        """Return whether some import binds a name."""
        return name in self._imported

    def is_of_import(self, node: cst.BaseExpression) -> bool:
        """Match ``np``, ``np.load`` and the like: what an import binds, and attributes of it."""
        root = root_of(node)
        return isinstance(root, cst.Name) and self.is_imported(root.value)

    def imports_of(self, package: str) -> tuple[cst.Import | cst.ImportFrom, ...]:
        """List the import statements that bring something of ``package``."""
        nodes = ((n, imported_modules(n)) for n in self.nodes(cst.Import, cst.ImportFrom))
        return tuple(n for n, names in nodes if any(name.partition(".")[0] == package for name in names))

    @cached_property
    def uses_unsloth(self) -> bool:
        """Tell whether Unsloth, or a fork that kept its names, is imported."""
        return any(map(self.imports_of, libraries.UNSLOTH_PACKAGES))

    def qualified(self, node: cst.CSTNode) -> str:
        """Return the dotted name that an expression stands for, through imports; "" where it is none.

        ``FastLanguageModel.from_pretrained`` gives ``unsloth.FastLanguageModel.from_pretrained``, whatever
        it was imported as. A name that is not imported stands for itself.
        """
        if (known := self._qualified.get(node)) is None:
            known = self._qualified[node] = libraries.OLD_PREFIX.sub("", self._qualify(node))
        return known

    def _qualify(self, node: cst.CSTNode) -> str:
        match node:
            case cst.Name(value=name):
                if targets := self.collected.imports.get(name):
                    own = self.binding(node) if self.definitions(name) else None
                    is_own = own is not None and isinstance(own.node, cst.FunctionDef | cst.ClassDef)
                    return name if is_own else targets[-1]
                bindings = self.bindings(name)
                for module in () if bindings else self.collected.stars:
                    if name in libraries.STAR_EXPORTS.get(module.partition(".")[0], ()):
                        return f"{module}.{name}"
                    if name == "plt":  # of a module that has imported it, by its usual name
                        return "matplotlib.pyplot"
                alias = bindings[0].value if len(bindings) == 1 else None
                if isinstance(alias, cst.Name | cst.Attribute) and self.is_of_import(alias):
                    return self.qualified(alias)  # Config = trl.SFTConfig
                return name
            case cst.Attribute(value=value, attr=attr):
                inner = self.qualified(value)
                return f"{inner}.{attr.value}" if inner else ""
        return ""

    def our(self, name: str) -> str:
        """Return ``name``, prefixed with ``ddp_`` if the notebook already binds it to something else."""
        ours = libraries.OUR_IMPORTS.get(name, frozenset())
        taken = name in self.collected.bindings or not ours.issuperset(self.collected.imports.get(name, ()))
        return f"ddp_{name}" if taken else name


def _order(item: Binding | Load | Imported) -> int:
    return item.order
