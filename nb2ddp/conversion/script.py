"""Put a script together: the user's cells in order, with the init block before the first heavy import."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.rewriting.engine import Rewritten
from nb2ddp.rewriting.findings import Need, Options
from nb2ddp.rules.init_block import MARKER
from nb2ddp.source.cells import CodeCell, Place
from nb2ddp.source.ipython_syntax import PythonText, align
from nb2ddp.source.notebook import Notebook

# Helpers that helpers need.
_DEPENDS = {
    "shell": ("wait_for_main_process",),
    "write_file": ("wait_for_main_process",),
    "main_process_first": ("wait_for_main_process",),
    "in_turn": ("wait_for_main_process",),
    "from_main_process": ("from_all_ranks", "wait_for_main_process"),
    "share_loop": ("from_all_ranks", "wait_for_main_process"),
    "wrap_trainer": ("wrap_ddp",),
}
# The modules that they import.
_MODULES = {
    "main_process_first": "contextlib",
    "in_turn": "contextlib",
    "shell": "subprocess",
    "shell_output": "subprocess",
    "check_replicas": "hashlib",
    "drop_weight_tying": "functools",
    "from_all_ranks": "io",
    "share_batch": "math",
    "share_loop": "itertools",
    "setup_ddp": "atexit time",
    "finish_ddp": "time",
    "wait_for_main_process": "functools traceback",
    "unsloth": "tempfile",
    "save_plots": "itertools",
    "seed": "random",
    "seed_numpy": "numpy",
}
_RULER = 90
_USES_OS = re.compile(r"(?<![.\w])os\.")


@dataclass(frozen=True)
class Line:
    """A line of the script, and the line (from 0) of a rewritten cell that it is; cell 0 is none."""

    text: str
    cell: int = 0
    number: int = 0


@dataclass(frozen=True)
class Script:
    """The training script."""

    lines: tuple[Line, ...]
    rewritten: Mapping[int, str]
    cells: Mapping[int, CodeCell]

    @cached_property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines).rstrip() + "\n"

    @cached_property
    def _places(self) -> Mapping[int, Sequence[tuple[int, int]]]:
        """For each cell its lines that are in the script: number in the cell, and in the script from 1."""
        places: dict[int, list[tuple[int, int]]] = {}
        for number, line in enumerate(self.lines, start=1):
            if line.cell:
                places.setdefault(line.cell, []).append((line.number, number))
        return places

    def origin(self, number: int) -> Place | None:
        """Return the notebook's place of a line of the script (from 1); None for what nb2ddp put in."""
        if not 1 <= number <= len(self.lines) or not self.lines[number - 1].cell:
            return None
        line = self.lines[number - 1]
        cell = self.cells[line.cell]
        old = align(cell.python.text.split("\n"), self.rewritten[line.cell].split("\n"))
        return Place(line.cell, cell.python.notebook_line(old[min(line.number, len(old) - 1)]))

    def line(self, place: Place | None) -> int | None:
        """The script's line (from 1) of a place in the notebook; None where the cell is gone."""
        if place is None or place.cell not in self._places:
            return None
        cell = self.cells[place.cell]
        old, new = cell.python.text.split("\n"), self.rewritten[place.cell].split("\n")
        at = next((i for i, line in enumerate(cell.python.lines) if line >= place.line), len(old) - 1)
        wanted = 0
        for _, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if a <= at < b:
                wanted = min(c + at - a, max(d - 1, c))
        here = self._places[place.cell]
        return next((number for own, number in here if own >= wanted), here[-1][1])


def assemble(
    notebook: Notebook, facts: Facts, rewritten: Rewritten, options: Options, *, nproc: int, has_setup: bool
) -> Script:
    """The training script. Raises nothing: what cannot be converted was declined before."""
    from nb2ddp.rendering import render

    cells = {cell.number: cell for cell in facts.cells}
    body = _body(notebook, rewritten)
    at = next((i for i, line in enumerate(body) if line.text == MARKER), None)
    environment, rest = ([], body) if at is None else (body[:at], body[at + 1 :])
    head = render(
        "script/head.py.j2",
        notebook=notebook.path.name,
        nproc=nproc,
        options=options,
        has_setup=has_setup,
    ).splitlines()
    head += [need.value for need in _sorted(rewritten.needs) if need.helper == "from __future__"]
    if environment:
        head.append("")
        if any(_USES_OS.search(line.text) for line in environment):
            head += ["import os", ""]
    init = _init_block(facts, rewritten.needs).splitlines()
    lines = [*map(Line, head), *environment, *map(Line, [*init, "", ""]), *rest]
    return Script(tuple(lines), rewritten.code, cells)


def _body(notebook: Notebook, rewritten: Rewritten) -> list[Line]:
    """The cells' lines; the marker of the init block is one of them, if there is a place for it."""
    with_installs = {c.place.cell for c in rewritten.changes if c.place and c.rule == "installs"}
    body: list[Line] = []
    comments: list[str] = []
    for cell in notebook.cells:
        if cell.kind != "code":
            comments += _as_comments(cell.source)
            continue
        lines = [
            Line(text, cell.number, number)
            for number, text in enumerate(rewritten.code.get(cell.number, "").split("\n"))
        ]
        lines = _stripped(lines)
        at = next((i for i, line in enumerate(lines) if line.text == MARKER), None)
        if at is not None and all(not line.text or line.text.startswith("#") for line in lines[:at]):
            body.append(lines.pop(at))  # the block stands above the whole cell
            lines = _stripped(lines)
        if not lines and cell.source.strip():
            reason = "; installs run once, in setup_env.py" if cell.number in with_installs else ""
            lines = [Line(f"# nothing of this cell is left to do here{reason}", cell.number)]
        if lines or comments:
            body += [Line(_ruler(cell.number)), *map(Line, comments), *lines, Line("")]
            comments = []
    return [*body, *map(Line, comments)]


def _stripped(lines: list[Line]) -> list[Line]:
    """Without the empty lines at both ends."""
    filled = [i for i, line in enumerate(lines) if line.text]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def _ruler(number: int) -> str:
    return f"# ---- cell {number} ".ljust(_RULER, "-")


def _as_comments(source: str) -> list[str]:
    return [f"# {line}".rstrip() for line in source.splitlines()] if source.strip() else []


def _init_block(facts: Facts, needs: frozenset[Need]) -> str:
    from nb2ddp.rendering import render

    helpers = {need.helper for need in needs}
    for name in list(helpers):
        helpers.update(_DEPENDS.get(name, ()))
    generations = any(need.value == "generations" for need in needs)
    passes_result = Need("check_replicas", "result") in needs
    modules = sorted({m for name in helpers for m in _MODULES.get(name, "").split()} | {"os", "sys"})
    block = render(
        "script/init.py.j2",
        helpers=helpers,
        passes_result=passes_result,
        modules=modules,
        generations=generations,
        seed=next((need.value for need in needs if need.helper == "seed"), None),
    ).strip("\n")
    tree = cst.parse_module(block)
    taken = {name for name in _names(tree) if facts.our(name) != name}
    return tree.visit(_Renamer(taken)).code if taken else block


def _names(block: cst.Module) -> Iterator[str]:
    """What the init block binds: a notebook may use these names for something else."""
    seen = Facts([CodeCell(0, "", PythonText("", ()), block)])
    for statement in seen.top_statements:
        yield from seen.binds_in(statement)


class _Renamer(cst.CSTTransformer):
    """Puts ``ddp_`` before names, in imports too."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        self._names = names

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        taken = updated_node.value in self._names
        return updated_node.with_changes(value=f"ddp_{updated_node.value}") if taken else updated_node

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> cst.ImportFrom:
        return updated_node.with_changes(module=original_node.module)

    def leave_ImportAlias(
        self, original_node: cst.ImportAlias, updated_node: cst.ImportAlias
    ) -> cst.ImportAlias:
        name = original_node.name
        if (
            original_node.asname is not None
            or not isinstance(name, cst.Name)
            or name.value not in self._names
        ):
            return updated_node.with_changes(name=name)
        alias = cst.AsName(cst.Name(f"ddp_{name.value}"))
        return updated_node.with_changes(name=name, asname=alias)


def _sorted(needs: Iterable[Need]) -> list[Need]:
    return sorted(needs, key=lambda need: (need.helper, need.value))
