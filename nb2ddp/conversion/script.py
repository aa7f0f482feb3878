"""Put a script together: the user's cells in order, with the init block before the first heavy import."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.training_arguments import libraries_know_ranks
from nb2ddp.ddp_folder import SETUP
from nb2ddp.options import Options
from nb2ddp.rewriting.engine import Rewritten
from nb2ddp.rewriting.findings import Need
from nb2ddp.rewriting.runtime_calls import helper, module_name
from nb2ddp.rules.init_block import MARKER
from nb2ddp.runtime import support_module, used_names
from nb2ddp.source.cells import CodeCell, Place
from nb2ddp.source.ipython_syntax import align
from nb2ddp.source.line_matcher import LineMatcher
from nb2ddp.source.notebook import Notebook
from nb2ddp.targets.kaggle import literal

_RULER = 90


@dataclass(frozen=True)
class Line:
    """A line of the script, and the line (from 0) of a rewritten cell that it is; cell 0 is none.

    ``heads``: the cell above whose code the line stands, as its ruler or as the text cells before it.
    """

    text: str
    cell: int = 0
    number: int = 0
    heads: int = 0


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
    def _numbers(self) -> Mapping[int, Sequence[tuple[int, int]]]:
        """For each cell its lines that are in the script: number in the cell, and in the script from 1."""
        numbers: dict[int, list[tuple[int, int]]] = {}
        for number, line in enumerate(self.lines, start=1):
            if line.cell:
                numbers.setdefault(line.cell, []).append((line.number, number))
        return numbers

    @cached_property
    def places(self) -> Mapping[int, Place]:
        """The notebook's place of each line (from 1) of the script; lines that nb2ddp added have none."""
        origins = {
            number: align(self.cells[number].python.text.split("\n"), text.split("\n"))
            for number, text in self.rewritten.items()
        }
        places = {}
        for number, line in enumerate(self.lines, start=1):
            if line.cell and line.text.strip():
                old = origins[line.cell]
                python = self.cells[line.cell].python
                places[number] = Place(line.cell, python.notebook_line(old[min(line.number, len(old) - 1)]))
        return places

    def line(self, place: Place | None) -> int | None:
        """Return the script's line (from 1) of a place in the notebook; None if the cell is not in the script."""
        if place is None or place.cell not in self._numbers:
            return None
        moved = self._moved[place.cell]
        wanted = moved[min(bisect_left(self.cells[place.cell].python.lines, place.line), len(moved) - 1)]
        here = self._numbers[place.cell]
        return here[min(bisect_left(here, (wanted, 0)), len(here) - 1)][1]

    @cached_property
    def _moved(self) -> Mapping[int, Sequence[int]]:
        """For each cell the line (from 0) that each of its lines became when it was rewritten."""
        moved: dict[int, list[int]] = {}
        for number in self._numbers:
            old, new = self.cells[number].python.text.split("\n"), self.rewritten[number].split("\n")
            moved[number] = [
                min(c + n, max(d - 1, c))
                for _, a, b, c, d in LineMatcher(old, new).get_opcodes()
                for n in range(b - a)
            ]
        return moved


def assemble(
    notebook: Notebook, facts: Facts, rewritten: Rewritten, options: Options, *, nproc: int, has_setup: bool
) -> Script:
    """Return the training script. Raises nothing: what cannot be converted was declined before."""
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
    head += sorted(need.value for need in rewritten.needs if need.kind == "from __future__")
    head.append("")
    if environment and _is_missing(facts, "os", environment):
        head += [_import("os", facts.our("os")), ""]
    init = _init_block(facts, rewritten.needs, rest, options, notebook.path.parent)
    lines = [*map(Line, head), *environment, *map(Line, [*init, "", ""]), *rest]
    return Script(tuple(lines), rewritten.code, cells)


def _body(notebook: Notebook, rewritten: Rewritten) -> list[Line]:
    """Return the cells' lines; the marker of the init block is one of them, if there is a place for it."""
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
            empty = f"this cell's installs run once, in {SETUP}"
            if cell.number not in with_installs:
                empty = _left_out(cell.source)
            lines = [Line(f"# nb2ddp: {empty}", cell.number)]
        if lines or comments:
            ruler = f"# ---- cell {cell.number} ".ljust(_RULER, "-")
            above = (Line(text, heads=cell.number) for text in (ruler, *comments))
            body += [*above, *lines, Line("")]
            comments = []
    return [*body, *map(Line, comments)]


def _left_out(source: str) -> str:
    """Return why a cell is not in the script: its magics by name, if it holds nothing else."""
    lines = [line for line in source.splitlines() if line.strip()]
    magics = [found[0] for line in lines if (found := re.match(r"%\w+", line))]
    if len(magics) < len(lines):
        return "a script needs nothing of this cell"
    names = [f"`{name}`" for name in dict.fromkeys(magics)]
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} for the notebook alone"


def _stripped(lines: list[Line]) -> list[Line]:
    """Return lines without the empty ones at both ends."""
    filled = [i for i, line in enumerate(lines) if line.text]
    return lines[filled[0] : filled[-1] + 1] if filled else []


# A picture that is written out in a text.
_PICTURE = re.compile(r"(data:[\w./+-]+;base64,)[A-Za-z0-9+/=\s]{64,}")


def _as_comments(source: str) -> list[str]:
    source = _PICTURE.sub(r"\1...", source)
    return [f"# {line}".rstrip() for line in source.splitlines()] if source.strip() else []


def _init_block(
    facts: Facts, needs: Iterable[Need], body: Sequence[Line], options: Options, folder: Path
) -> list[str]:
    """Return the init block, at the place of the first heavy import: the runtime module, and this rank's numbers."""
    given = ['strategy="fsdp"'] if options.strategy == "fsdp" else []
    given += [f"{need.kind}={need.value}" for need in needs if need.kind == "loads_share"]
    arguments = ", ".join(given)
    knows = libraries_know_ranks(facts, options.strategy)
    ddp = module_name(facts)
    names = ", ".join(facts.our(name) for name in ("rank", "local_rank", "world_size"))
    always = () if options.single_file else ("sys",)
    modules = [name for name in ("os", "sys", "torch") if name in always or _is_missing(facts, name, body)]
    imports = [_import(name, facts.our(name)) for name in modules]
    if options.single_file:
        ours = _runtime_in_script(facts, body, folder)
    else:
        ours = [
            "try:",
            f"    {_import('ddp_support', ddp)}",
            "except ModuleNotFoundError as missing:",
            f'    {facts.our("sys")}.exit(f"{{missing}}: this script needs PyTorch, and ddp_support.py beside it")',
        ]
    device = "this rank's GPU is cuda:<local_rank>, if there is one; only rank 0 prints"
    if not knows:
        device = "each rank sees its own GPU alone, as cuda:0; only rank 0 prints"
    return [
        *imports,
        "",
        *ours,
        "",
        f"{names} = {helper(facts, 'init_ranks' if knows else 'init')}({arguments})  # {device}",
    ]


def _import(module: str, name: str) -> str:
    return f"import {module}" if name == module else f"import {module} as {name}"


def _is_missing(facts: Facts, module: str, body: Sequence[Line]) -> bool:
    """Return whether the script uses a module before, or without, an import of its own."""
    name = facts.our(module)
    uses = re.compile(rf"(?<![.\w]){name}\.")
    # what binds it: `import os`, `import torch.nn`, not `from torch.nn import X` or `import torch.nn as nn`
    imports = re.compile(
        rf"^import (?:.*,\s*)?{name}(?:\.\w+)*\s*(?:[,;#]|$)|^from \S+ import .*\b{name}\b|^import .*\bas {name}\b"
    )
    for line in body:
        if imports.search(line.text):
            return False
        if uses.search(line.text) and not line.text.lstrip().startswith(("#", "from ", "import ")):
            return True
    return False


def _runtime_in_script(facts: Facts, body: Sequence[Line], folder: Path) -> list[str]:
    """Return the lines that make the runtime module of its own text, for a script that is one file."""
    from nb2ddp.rendering import render

    ddp = module_name(facts)
    used = used_names("\n".join(line.text for line in body), ddp, folder)
    text = literal(support_module(used))
    lines = render("script/single_file.py.j2", load=facts.our("make_ddp_support"), ddp=ddp, text=text)
    return lines.rstrip("\n").split("\n")
