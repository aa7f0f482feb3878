"""Index the syntax trees of all cells: parents, order, statements, scopes, places.

The only module that resolves LibCST metadata. All answers come from the one walk of
`nb2ddp.source.cells`; line numbers are computed only for cells that are asked about.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar, overload

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from nb2ddp.source.cells import CodeCell, Collected, Place, Scope, Statement, Walker

Node = TypeVar("Node", bound=cst.CSTNode)
_Within = cst.CSTNode | None
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


class Tree:
    """Answer where a node stands. Nodes in questions are nodes of the cells' own trees."""

    def __init__(self, cells: Sequence[CodeCell]) -> None:
        self.cells = tuple(cells)
        self.collected = Collected()
        walker = Walker(self.collected)
        self._cell_of: dict[cst.Module, CodeCell] = {}
        for cell in self.cells:
            self._cell_of[cell.module] = cell
            cell.module.visit(walker)
        self._parents = self.collected.parents
        self._spans = self.collected.spans

        self._lines: dict[CodeCell, dict[cst.CSTNode, int]] = {}
        # All of them, in order, dead code included; strings that are no docstrings, and what `args.x = 1` sets.
        self.calls: Sequence[cst.Call] = self.nodes(cst.Call)
        self.strings: Sequence[cst.BaseString] = self.collected.strings
        self.attributes: Sequence[cst.Attribute] = self.nodes(cst.Attribute)
        self.attribute_targets: Sequence[cst.Attribute] = self.collected.attribute_targets

    # ---- nodes --------------------------------------------------------------------------------

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return the node directly around ``node``; None for a Module."""
        return self._parents.get(node)

    def parents(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the nodes around ``node``, innermost first, up to the cell's Module."""
        current = self._parents.get(node)
        while current is not None:
            yield current
            current = self._parents.get(current)

    def called(self, node: cst.CSTNode) -> cst.Call | None:
        """Return the call that calls ``node``; None where it is not called."""
        parent = self._parents.get(node)
        return parent if isinstance(parent, cst.Call) and parent.func is node else None

    def owner(self, call: cst.Call) -> cst.BaseExpression | None:
        """Return ``x`` of a call ``x.method()``; None for a plain function."""
        return call.func.value if isinstance(call.func, cst.Attribute) else None

    def around(self, node: cst.CSTNode, *kinds: type[Node]) -> Node | None:
        """Return the innermost node of some kinds around ``node``; None without one."""
        return next((parent for parent in self.parents(node) if isinstance(parent, kinds)), None)

    def loop(self, node: cst.CSTNode) -> cst.For | cst.While | None:
        """Return the innermost loop around ``node``; None without one."""
        return next((loop for loop in self.loops(node) if not isinstance(loop, cst.BaseComp)), None)

    def loops(self, node: cst.CSTNode) -> Iterator[cst.For | cst.While | cst.BaseComp]:
        """Yield the loops and comprehensions that repeat ``node``, innermost first: not those that go through it."""
        inner, innermost = node, node
        for parent in self.parents(node):
            match parent:
                case cst.BaseComp(for_in=cst.CompFor(iter=once)):
                    repeats = innermost is not once
                case cst.For(iter=once, orelse=orelse):
                    repeats = inner is not once and inner is not orelse
                case _:
                    repeats = isinstance(parent, cst.While) and inner is not parent.orelse
            if repeats and isinstance(parent, cst.For | cst.While | cst.BaseComp):
                yield parent
            inner, innermost = parent, inner

    def order(self, node: cst.CSTNode) -> int:
        """Return a number that grows through the notebook: the lower of two nodes comes first."""
        return self._spans[node][0]

    def end(self, node: cst.CSTNode) -> int:
        """Return the order of the last node inside ``node``."""
        return self._spans[node][1]

    def contains(self, outer: cst.CSTNode, inner: cst.CSTNode) -> bool:
        """Return whether ``inner`` is ``outer`` or stands inside it."""
        start, end = self._spans[outer]
        return start <= self._spans[inner][0] <= end

    def is_dead(self, node: cst.CSTNode) -> bool:
        """Return whether ``node`` is in the body of an ``if False:``."""
        inner = node
        for parent in self.parents(node):
            if isinstance(parent, cst.If) and inner is parent.body:
                test = parent.test
                if isinstance(test, cst.Name | cst.Integer) and test.value in ("False", "None", "0"):
                    return True
            inner = parent
        return False

    # ---- statements, scopes and places ----------------------------------------------------------

    @cached_property
    def top_statements(self) -> tuple[Statement, ...]:
        """List the statements of all cells, in order."""
        return tuple(statement for cell in self.cells for statement in cell.module.body)

    def statement(self, node: cst.CSTNode) -> Statement:
        """Return the smallest whole statement around ``node`` that can be moved, wrapped or dropped."""
        current: cst.CSTNode = node
        for parent in self.parents(node):
            if isinstance(parent, cst.Module | cst.IndentedBlock):
                assert isinstance(current, cst.SimpleStatementLine | cst.BaseCompoundStatement)
                return current
            current = parent
        raise ValueError("the node belongs to no statement")

    def top_statement(self, node: cst.CSTNode) -> Statement:
        """Return the statement of the cell itself that holds ``node``."""
        *_, top, _ = node, *self.parents(node)
        assert isinstance(top, cst.SimpleStatementLine | cst.BaseCompoundStatement)
        return top

    def line_of(self, node: cst.CSTNode) -> Statement | None:
        """Return the line that a call or a small statement fills; None where it is a part of one."""
        match line := self.statement(node):
            case cst.SimpleStatementLine(body=[cst.Expr(value=only)]) if only is node:
                return line
            case cst.SimpleStatementLine(body=[only]) if only is node:
                return line
        return None

    def is_certain(self, node: cst.CSTNode) -> bool:
        """Return whether a node runs, and runs once, when its cell does."""
        statement = self.statement(node)
        simple = isinstance(statement, cst.SimpleStatementLine | cst.FunctionDef | cst.ClassDef)
        return simple and isinstance(self.parent(statement), cst.Module)

    def scope(self, node: cst.CSTNode) -> Scope | None:
        """Return the function, lambda or class body that ``node`` runs in; None at module level."""
        inner = node
        for parent in self.parents(node):
            if isinstance(parent, cst.FunctionDef | cst.ClassDef | cst.Lambda) and inner is parent.body:
                return parent
            inner = parent
        return None

    def cell(self, node: cst.CSTNode) -> CodeCell:
        """Return the cell that contains ``node``."""
        *_, module = node, *self.parents(node)
        assert isinstance(module, cst.Module)
        return self._cell_of[module]

    def place(self, node: cst.CSTNode) -> Place:
        """Return the cell and the line of ``node``, as the user typed them."""
        cell = self.cell(node)
        if cell not in self._lines:
            ranges = MetadataWrapper(cell.module, unsafe_skip_copy=True).resolve(PositionProvider)
            self._lines[cell] = {key: value.start.line for key, value in ranges.items()}
        return Place(cell.number, cell.python.notebook_line(self._lines[cell].get(node, 1)))

    # ---- nodes by kind --------------------------------------------------------------------------

    @cached_property
    def live_calls(self) -> tuple[cst.Call, ...]:
        """List the calls outside dead code, in order."""
        return tuple(call for call in self.calls if not self.is_dead(call))

    @overload
    def nodes(self, kind: type[Node], /, *, within: _Within = ..., own: bool = ...) -> list[Node]: ...
    @overload
    def nodes(self, *kinds: type[cst.CSTNode], within: _Within = ..., own: bool = ...) -> list[Any]: ...
    def nodes(self, *kinds: type[cst.CSTNode], within: _Within = None, own: bool = False) -> list[Any]:
        """List the nodes of some kinds, in order; those inside ``within``, itself included, where it is given.

        ``own`` leaves out what stands in a function, class or lambda inside it.
        """
        found: list[cst.CSTNode] = []
        for kind in kinds:
            nodes: Sequence[cst.CSTNode] = self.collected.by_kind.get(kind, [])
            found += nodes if within is None else self.part(within, nodes, self.order)
        if own and within is not None:
            found = [node for node in found if self.scope(node) is self.scope(within)]
        return sorted(found, key=self.order) if len(kinds) > 1 else found

    def part(self, node: cst.CSTNode, items: Sequence[Item], order: Callable[[Item], int]) -> Sequence[Item]:
        """Return the part of some items, which are in order, that stands inside ``node``."""
        start, end = self._spans[node]
        return items[bisect.bisect_left(items, start, key=order) : bisect.bisect_right(items, end, key=order)]

    def calls_in(self, node: cst.CSTNode) -> list[cst.Call]:
        """List the calls inside ``node``, itself included, in order."""
        return self.nodes(cst.Call, within=node)


def grouped(pairs: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    """Return the items of each key, in order."""
    found: dict[Key, list[Item]] = {}
    for key, item in pairs:
        found.setdefault(key, []).append(item)
    return found
