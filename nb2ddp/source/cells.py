"""Parse cells, and collect in one walk the nodes, names and imports in them.

Nothing is decided here: `nb2ddp.analysis.facts` answers questions from what was collected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import libcst as cst
from libcst import matchers
from libcst.helpers import get_full_name_for_node

from nb2ddp import libraries
from nb2ddp.source import cst_nodes, ipython_syntax
from nb2ddp.source.ipython_syntax import PythonText
from nb2ddp.source.parser import parse_module
from nb2ddp.source.shell_text import expanded_names
from nb2ddp.source.syntax_check import check

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
Scope = cst.FunctionDef | cst.Lambda | cst.ClassDef
_OF_IPYTHON = matchers.Attribute(matchers.Call(matchers.Name("get_ipython"), args=[]))
_PYLAB = re.compile(r"^(?:matplotlib\.)?pylab\b")  # has pyplot's functions by the same names


@dataclass(frozen=True, eq=False)
class CodeCell:
    """One code cell, parsed. ``source`` is the cell's text, ``python`` the Python that was parsed.

    ``needs`` is the Python version that its syntax needs, if the running Python is older.
    """

    number: int
    source: str
    python: PythonText
    module: cst.Module
    needs: tuple[int, int] | None = None

    def with_text(self, text: str) -> CodeCell:
        """Return the cell with ``text``, whose lines come from those of its Python."""
        if text == self.python.text:
            return self
        origins = ipython_syntax.align(self.python.text.split("\n"), text.split("\n"))
        python = PythonText(text, tuple(self.python.notebook_line(line) for line in origins))
        return replace(self, python=python, module=parse_module(text))


def parse_cell(number: int, source: str) -> CodeCell:
    """Parse one cell; nothing is executed.

    The parts of ``a; b`` or ``def f(): a()`` get lines of their own if the rules may have to move them.

    Raises:
        UnreadError: it is not read, though it may be valid.
        SyntaxError, ValueError, RecursionError, MemoryError: the cell is not valid Python, or cannot be parsed.
    """
    python = ipython_syntax.to_python(source)
    needs = check(python.text)  # refuses code that is nested too deeply, on which LibCST would crash
    module = parse_module(python.text)
    crowded = ";" in python.text or _ONE_LINE.search(python.text)
    cell = CodeCell(number, source, python, module, needs)
    return cell.with_text(cst_nodes.one_per_line(module, _may_move).code) if crowded else cell


_ONE_LINE = re.compile(
    r"^[ \t]*(?:(?:(?:async )?def|for) .*|else|(?:el)?if .*:=.*):[ \t]*[^\s#]|=[ \t(]*lambda\b", re.MULTILINE
)


def _may_move(node: cst.CSTNode) -> bool:
    """Return whether rules may have to move a statement, or what a function does with a call of its body."""
    if isinstance(node, cst.Call):
        name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
        return isinstance(name, cst.Name) and name.value in _MOVED
    if isinstance(node, cst.BaseSmallStatement) and "env" in cst_nodes.code_of(node):
        return True  # os.environ, os.putenv, %set_env
    names: matchers.MatchIfTrue[str] = matchers.MatchIfTrue(lambda name: name in libraries.MOVED_CALLS)
    function = matchers.Name(names) | matchers.Attribute(attr=matchers.Name(names))
    return bool(matchers.findall(node, matchers.Call(func=function)))


_MOVED = libraries.MOVED_CALLS | {"parameters", "named_parameters", "open"}


@dataclass(frozen=True)
class Place:
    """A position in the notebook: code cell (from 1) and line of that cell (from 1)."""

    cell: int
    line: int


@dataclass(frozen=True, eq=False)
class Binding:
    """One assignment of a value to a name; ``value`` is None if the value is not an expression."""

    name: str
    node: cst.CSTNode
    value: cst.BaseExpression | None
    index: int | None
    order: int
    scope: Scope | None


@dataclass(frozen=True, eq=False)
class Load:
    order: int
    name: str
    node: cst.Name


@dataclass(frozen=True, eq=False)
class Imported:
    order: int
    name: str
    node: cst.CSTNode
    scope: Scope | None


@dataclass
class Collected:
    parents: dict[cst.CSTNode, cst.CSTNode] = field(default_factory=dict)
    spans: dict[cst.CSTNode, tuple[int, int]] = field(default_factory=dict)
    imports: dict[str, list[str]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    import_orders: list[Imported] = field(default_factory=list)
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    loads: list[Load] = field(default_factory=list)
    strings: list[cst.BaseString] = field(default_factory=list)
    attribute_targets: list[cst.Attribute] = field(default_factory=list)
    by_kind: dict[type[cst.CSTNode], list[cst.CSTNode]] = field(default_factory=dict)


class Walker(cst.CSTVisitor):
    """Number the nodes in one walk, and collect parents, imports, bindings, loads and strings."""

    def __init__(self, seen: Collected) -> None:
        self._seen = seen
        self._stack: list[cst.CSTNode] = []
        self._scopes: list[Scope] = []
        self._globals: list[set[str]] = []
        self._count = 0
        self._stores: set[cst.CSTNode] = set()

    def on_visit(self, node: cst.CSTNode) -> bool:
        self._count += 1
        if self._stack:
            self._seen.parents[node] = self._stack[-1]
        self._seen.spans[node] = (self._count, self._count)
        if isinstance(node, cst.BaseParenthesizableWhitespace | cst.TrailingWhitespace | cst.EmptyLine):
            return False
        self._seen.by_kind.setdefault(type(node), []).append(node)
        self._stack.append(node)
        visit = getattr(self, f"_on_{type(node).__name__}", None)
        if visit is not None:
            visit(node)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if self._stack and self._stack[-1] is original_node:
            self._stack.pop()
            self._seen.spans[original_node] = (self._seen.spans[original_node][0], self._count)
            if self._scopes and self._scopes[-1] is original_node:
                self._scopes.pop()
                self._globals.pop()

    # Each of these methods is called before the node's children are visited.

    def _bind_target(
        self,
        target: cst.CSTNode,
        node: cst.CSTNode,
        value: cst.BaseExpression | None,
        index: int | None = None,
    ) -> None:
        match target:
            case cst.Name(value=name):
                self._stores.add(target)
                scope = self._scopes[-1] if self._scopes and name not in self._globals[-1] else None
                binding = Binding(name, node, value, index, self._seen.spans[node][0], scope)
                self._seen.bindings.setdefault(name, []).append(binding)
            case cst.Tuple(elements=elements) | cst.List(elements=elements):
                values = value.elements if isinstance(value, cst.Tuple) else None
                for i, element in enumerate(elements):
                    if values is not None and len(values) == len(elements):
                        self._bind_target(element.value, node, values[i].value)
                    else:
                        self._bind_target(element.value, node, value, i)

    def _on_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            self._bind_target(target.target, node, node.value)
            if isinstance(target.target, cst.Attribute):
                self._seen.attribute_targets.append(target.target)

    def _on_AnnAssign(self, node: cst.AnnAssign) -> None:
        if node.value is not None:
            self._bind_target(node.target, node, node.value)

    def _on_AugAssign(self, node: cst.AugAssign) -> None:
        self._bind_target(node.target, node, None)
        self._stores.discard(node.target)

    def _on_NamedExpr(self, node: cst.NamedExpr) -> None:
        self._bind_target(node.target, node, node.value)

    def _on_For(self, node: cst.For) -> None:
        self._bind_target(node.target, node, None)

    def _on_AsName(self, node: cst.AsName) -> None:
        parent = self._seen.parents[node]
        if isinstance(parent, cst.WithItem):
            self._bind_target(node.name, parent, parent.item)
        elif isinstance(parent, cst.ExceptHandler):
            self._bind_target(node.name, parent, None)

    def _begin_scope(self, node: Scope) -> None:
        if not isinstance(node, cst.Lambda):
            self._bind_target(node.name, node, None)
        self._scopes.append(node)
        self._globals.append(set())

    _on_FunctionDef = _on_ClassDef = _on_Lambda = _begin_scope

    def _on_Param(self, node: cst.Param) -> None:
        self._bind_target(node.name, node, None)

    def _on_Global(self, node: cst.Global) -> None:
        if self._globals:
            self._globals[-1].update(item.name.value for item in node.names)

    def _on_CompFor(self, node: cst.CompFor) -> None:
        self._stores.update(matchers.findall(node.target, matchers.Name()))

    def _on_Import(self, node: cst.Import) -> None:
        for alias in node.names:
            self._stores.add(root_of(alias.name))
            first = alias.evaluated_name.partition(".")[0]
            if alias.evaluated_alias is not None:
                self._import(alias.evaluated_alias, alias.evaluated_name, node)
            else:
                self._import(first, first, node)

    def _on_ImportFrom(self, node: cst.ImportFrom) -> None:
        module = "." * len(node.relative) + ".".join(imported_modules(node))
        if node.module is not None:
            self._stores.add(root_of(node.module))
        if isinstance(node.names, cst.ImportStar):
            self._seen.stars.append(_PYLAB.sub("matplotlib.pyplot", module))
            return
        for alias in node.names:
            name = alias.evaluated_alias or alias.evaluated_name
            self._import(name, f"{module}.{alias.evaluated_name}", node)

    def _import(self, name: str, target: str, node: cst.CSTNode) -> None:
        self._seen.imports.setdefault(name, []).append(_PYLAB.sub("matplotlib.pyplot", target))
        scope = self._scopes[-1] if self._scopes else None
        self._seen.import_orders.append(Imported(self._seen.spans[node][0], name, node, scope))

    def _on_Name(self, node: cst.Name) -> None:
        parent = self._seen.parents.get(node)
        is_load = node not in self._stores and not (
            isinstance(parent, cst.ImportAlias | cst.ImportFrom | cst.AsName | cst.NameItem)
            or (isinstance(parent, cst.Attribute) and parent.attr is node)
            or (isinstance(parent, cst.Arg) and parent.keyword is node)
        )
        if is_load:
            self._seen.loads.append(Load(self._seen.spans[node][0], node.value, node))

    def _on_SimpleString(self, node: cst.SimpleString) -> None:
        if not isinstance(self._seen.parents.get(node), cst.Expr):
            self._seen.strings.append(node)

    def _on_Call(self, node: cst.Call) -> None:
        """Count what IPython reads as it expands a shell line or a magic's arguments; it leaves a cell's body alone."""
        for argument in node.args[:2] if matchers.matches(node.func, _OF_IPYTHON) else ():
            for name in expanded_names(cst_nodes.string_value(argument.value) or ""):
                expanded = cst.Name(name)
                self._seen.parents[expanded], self._seen.spans[expanded] = argument, self._seen.spans[node]
                self._seen.loads.append(Load(self._count, name, expanded))


def imported_modules(node: cst.Import | cst.ImportFrom) -> list[str]:
    if isinstance(node, cst.Import):
        return [alias.evaluated_name for alias in node.names]
    return [name] if node.module and (name := get_full_name_for_node(node.module)) else []


def root_of(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return ``a`` of ``a.b.c``."""
    while isinstance(node, cst.Attribute):
        node = node.value
    return node


def last_name(node: cst.BaseExpression) -> str:
    """Return ``opt`` of ``self.opt``; "" for what is no name."""
    node = node.attr if isinstance(node, cst.Attribute) else node
    return node.value if isinstance(node, cst.Name) else ""
