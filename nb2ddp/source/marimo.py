"""Read the notebooks of marimo: Python files whose cells are functions, in the order in which marimo runs them.

The format: https://docs.marimo.io/guides/coming_from/jupyter/ and ``marimo/_ast/codegen.py`` of the package. A cell is
the body of a function under ``@app.cell``; ``@app.function`` and ``@app.class_definition`` are cells of one definition.
A name is given a value by one cell alone, so a cell runs after those whose names it uses, else in the file's order;
names that begin with an underscore are a cell's own.
"""

from __future__ import annotations

import ast
import heapq
import io
import re
import shlex
import symtable
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from nb2ddp.errors import NotebookError

_APP = re.compile(r"^(\w+) = marimo\.App\(", re.MULTILINE)
_SCRIPT = re.compile(r"^# /// script\n((?:#.*\n)*?)# ///$", re.MULTILINE)


def is_marimo(text: str) -> bool:
    """Return whether a Python file is a notebook of marimo."""
    return "import marimo" in text and _APP.search(text) is not None


@dataclass(frozen=True)
class MarimoCell:
    """One cell: code, or the text of ``mo.md("...")`` where ``is_text``."""

    source: str
    is_text: bool = False


@dataclass(frozen=True)
class _Found:
    source: str
    is_disabled: bool
    binds: frozenset[str]
    uses: frozenset[str]


def marimo_cells(path: Path, text: str) -> list[MarimoCell]:
    """Return the cells of a notebook in the order in which marimo runs them, after one that installs its packages.

    Raises:
        NotebookError: the file cannot be read, its cells depend on each other in a circle, or it asks a person.
    """
    try:
        cells = _run_order([_found(*cell) for cell in _cells(text)])
    except SyntaxError as error:
        raise NotebookError(f"{path}, line {error.lineno}, is not valid Python: {error.msg}.") from None
    except RecursionError:
        raise NotebookError(f"{path} holds an expression that is nested too deeply to be read.") from None
    if cells is None:
        raise NotebookError(
            f"{path}: its cells use each other's names in a circle, so marimo runs none of them; open it in marimo."
        )
    alias = _marimo_name(cells)
    made = [_made(source, alias) for source in _with_own_names(cells)]
    code = "\n".join(cell.source for cell in made if not cell.is_text)
    if asks := re.search(rf"\b{alias}\.(ui\.\w+|stop|state)\b", code):
        raise NotebookError(
            f"{path} uses `{asks[0]}`, which waits for a person or runs cells again: nobody is there on several GPUs. "
            "Write the value into the notebook instead."
        )
    imports = len(re.findall(rf"\bimport marimo as {alias}\b", code))
    needs_marimo = len(re.findall(rf"\b{alias}\b", code)) > imports
    if not needs_marimo:
        made = [cell for cell in made if cell.source.strip() != f"import marimo as {alias}"]
    packages = [name for name in _dependencies(text) if needs_marimo or not re.match(r"marimo\b(?!-)", name)]
    install = [MarimoCell("%pip install " + " ".join(map(shlex.quote, packages)))] if packages else []
    return install + made


def _cells(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the source of each cell, in the file's order, and whether it is disabled."""
    lines = text.splitlines()
    app = found[1] if (found := _APP.search(text)) else "app"
    for node in ast.parse(text).body:
        if isinstance(node, ast.With) and ast.unparse(node.items[0].context_expr).startswith(f"{app}.setup"):
            yield _body(lines, node.lineno, node.end_lineno), False
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                kind = ast.unparse(decorator)
                if re.match(rf"{app}\.(function|class_definition)\b", kind):
                    yield "\n".join(lines[decorator.end_lineno : node.end_lineno]), False
                elif re.match(rf"{app}\.cell\b", kind) and not isinstance(node, ast.ClassDef):
                    last = node.body[-1]
                    end = last.lineno - 1 if isinstance(last, ast.Return) else node.end_lineno
                    yield _body(lines, _header_end(lines, node), end), "disabled=True" in kind
        elif isinstance(node, ast.Expr) and ast.unparse(node.value).startswith(f"{app}._unparsable_cell("):
            assert isinstance(node.value, ast.Call)
            yield str(ast.literal_eval(node.value.args[0])).strip("\n"), False


def _header_end(lines: list[str], node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of the line that ends with the colon of a function."""
    line = max([node.lineno, *(arg.end_lineno or 0 for arg in node.args.args)])
    while not lines[line - 1].split("#")[0].rstrip().endswith(":"):
        line += 1
    return line


def _body(lines: list[str], header: int, end: int | None) -> str:
    """Return the lines of a block without its four spaces, which marimo puts before the lines of strings too."""
    return "\n".join(line.removeprefix("    ") for line in lines[header:end]).strip("\n")


def _found(source: str, is_disabled: bool) -> _Found:
    binds, uses = names_of(source)
    return _Found(source, is_disabled, binds, uses - binds)


def names_of(source: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the notebook's names to which a cell gives a value, and those that it uses; none of what is no Python."""
    try:
        table = symtable.symtable(source, "cell", "exec")
    except (SyntaxError, ValueError, RecursionError):  # the conversion names the line
        return frozenset(), frozenset()
    names = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
    deleted = {node.id for node in names if isinstance(node.ctx, ast.Del)}
    deleted -= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    binds = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()} - deleted
    return frozenset(binds), frozenset({*_globals_used(table), *deleted})


def _globals_used(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names that a cell, or a function in it, takes from the notebook."""
    for symbol in table.get_symbols():
        if symbol.is_referenced() if table.get_type() == "module" else symbol.is_global():
            yield symbol.get_name()
    for child in table.get_children():
        yield from _globals_used(child)


def _run_order(cells: list[_Found]) -> list[_Found] | None:
    """Return the cells that run, in order; None where they use each other's names in a circle."""
    maker = {name: n for n, cell in enumerate(cells) for name in cell.binds if not name.startswith("_")}
    after = [{maker[name] for name in cell.uses if name in maker} - {n} for n, cell in enumerate(cells)]
    sorter, ready, order = TopologicalSorter(dict(enumerate(after))), list[int](), list[int]()
    try:
        sorter.prepare()
    except CycleError:
        return None
    while sorter.is_active():
        for n in sorter.get_ready():
            heapq.heappush(ready, n)
        order.append(heapq.heappop(ready))
        sorter.done(order[-1])
    left_out: set[int] = set()
    for n in order:
        if cells[n].is_disabled or after[n] & left_out:
            left_out.add(n)
    return [cells[n] for n in order if n not in left_out]


def _with_own_names(cells: list[_Found]) -> list[str]:
    """Return the sources; a name with an underscore that several cells give a value is another one in each."""
    counts = Counter(name for cell in cells for name in cell.binds if name.startswith("_"))
    several = {name for name, count in counts.items() if count > 1 and name != "_"}
    return [
        _renamed(cell.source, {name: f"{name}_{number}" for name in cell.binds & several})
        for number, cell in enumerate(cells, 1)
    ]


def _renamed(source: str, names: dict[str, str]) -> str:
    """Rename variables: neither attributes nor keyword arguments, and nothing that is imported by that name."""
    if not names:
        return source
    lines, kept = source.splitlines(keepends=True), set[tuple[int, int]]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword):
            kept.add((node.lineno, len(lines[node.lineno - 1].encode()[: node.col_offset].decode())))
        elif isinstance(node, ast.alias) and node.asname is None:
            names.pop(node.name, None)
    before = ""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_name = token.type == tokenize.NAME and token.string in names
        if is_name and before != "." and token.start not in kept:
            found.append(token)
        before = token.string
    for token in reversed(found):
        row, start, end = token.start[0] - 1, token.start[1], token.end[1]
        lines[row] = lines[row][:start] + names[token.string] + lines[row][end:]
    return "".join(lines)


def _made(source: str, alias: str) -> MarimoCell:
    """Return a cell; what ``mo.md(text)`` shows at its end is printed, and a cell of a text alone is that text."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError):
        return MarimoCell(source)
    last = body[-1].value if body and isinstance(body[-1], ast.Expr) else None
    if isinstance(last, ast.Call) and ast.unparse(last.func) == f"{alias}.md":
        match last.args:
            case [ast.Constant(value=str(text))] if len(body) == 1:
                return MarimoCell(text.strip(), is_text=True)
        lines = source.splitlines()
        lines[last.lineno - 1] = lines[last.lineno - 1].replace(f"{alias}.md", "print", 1)
        return MarimoCell("\n".join(lines))
    return MarimoCell(source)


def _marimo_name(cells: list[_Found]) -> str:
    """Return the name that the notebook gives marimo."""
    names = (re.search(r"^import marimo(?: as (\w+))?$", cell.source, re.MULTILINE) for cell in cells)
    return next((found[1] or "marimo" for found in names if found), "mo")


def _dependencies(text: str) -> list[str]:
    """Return the packages that the file's header asks for (PEP 723)."""
    if not (found := _SCRIPT.search(text)):
        return []
    try:
        listed = tomllib.loads(re.sub(r"^# ?", "", found[1], flags=re.MULTILINE)).get("dependencies")
    except tomllib.TOMLDecodeError:
        return []
    return list(map(str, listed)) if isinstance(listed, list) else []
