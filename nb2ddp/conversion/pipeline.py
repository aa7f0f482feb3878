"""Convert a notebook into the files of its folder, in memory; `nb2ddp.ddp_folder` writes them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Unpack

from nb2ddp.analysis import installs
from nb2ddp.analysis.facts import Facts
from nb2ddp.conversion import setup_step
from nb2ddp.conversion.cell_text import with_automagic, without_futures
from nb2ddp.conversion.script import Script, assemble
from nb2ddp.conversion.secret_notes import masked, secret_notes
from nb2ddp.conversion.task import task_of
from nb2ddp.ddp_folder import KAGGLE, SCRIPT, SETUP, SUPPORT
from nb2ddp.options import OptionKeywords, Options
from nb2ddp.rewriting.engine import rewrite, rewrite_first
from nb2ddp.rewriting.findings import Change, Need, Rule
from nb2ddp.rewriting.runtime_calls import module_name
from nb2ddp.rules import BALANCED_RULES, RULES, surroundings, wrap
from nb2ddp.rules.memory import Estimate, estimates
from nb2ddp.runtime import support_module, used_names
from nb2ddp.source import ipython_syntax
from nb2ddp.source.cells import CodeCell, Place, parse_cell
from nb2ddp.source.notebook import Notebook, read_notebook
from nb2ddp.source.parser import UnreadError
from nb2ddp.source.syntax_check import NOT_PYTHON, check
from nb2ddp.targets.kaggle import GPUS, input_sources, kaggle_bundle, oversize

_MOST_CODE = 150_000  # real notebooks have up to 7,000; a conversion takes seconds then
_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"  # which cannot know what a later one will read
Status = Literal["converted", "declined", "failed"]


@dataclass(frozen=True)
class Conversion:
    """The result of converting one notebook.

    ``files`` holds the output by relative path; it is empty unless ``status`` is "converted". ``memory`` has
    an estimate for each model whose name tells its size.
    """

    notebook: Path
    status: Status
    files: Mapping[str, str] = field(default_factory=dict)
    changes: Sequence[Change] = ()
    declined: Sequence[Change] = ()
    notes: Sequence[Change] = ()
    task: str = ""
    script: Script | None = None
    source: Notebook | None = None
    memory: Sequence[Estimate] = ()


def convert(
    path: str | Path, *, options: Options | None = None, **keywords: Unpack[OptionKeywords]
) -> Conversion:
    """Convert one notebook; nothing is executed and nothing is written.

    Args:
        path: the ``.ipynb`` file.
        options: the options of the conversion; the defaults when None.
        keywords: single options (``nproc=4, batch="scale"``), which go before those of ``options``.

    Raises:
        NotebookError: the file cannot be read as a notebook.
        OptionError: an option has a value that it cannot have.
        BundleError: a line holds half a character, which no file can store.
    """
    chosen = (options or Options()).with_(**keywords)
    return convert_notebook(read_notebook(Path(path)), options=chosen)


def convert_notebook(
    notebook: Notebook, *, options: Options | None = None, **keywords: Unpack[OptionKeywords]
) -> Conversion:
    """Convert a notebook that has been read already."""
    options = (options or Options()).with_(**keywords)
    if notebook.language != "python":
        return _unread(notebook, f"its kernel speaks {notebook.language}; nb2ddp converts Python notebooks")
    if (size := notebook.code_size) > _MOST_CODE:
        return _unread(
            notebook,
            f"its code has some {size // 1000},000 words and signs, and {_MOST_CODE // 1000},000 are read at "
            "most; move data that is written out in it to a file",
        )
    cells, broken, futures = _parse(notebook)
    if broken:
        return _unread(notebook, *broken)
    try:
        facts = Facts.that_train(cells, [notebook.path.parent], sharded=options.strategy == "fsdp")
        return _converted(notebook, facts, options, futures)
    except RecursionError:
        return _unread(
            notebook, "an expression in this notebook is nested too deeply to be followed; split it up"
        )


def _unread(notebook: Notebook, *reasons: str | Change) -> Conversion:
    declined = [Change("read", None, why) if isinstance(why, str) else why for why in reasons]
    return Conversion(notebook.path, "declined", declined=declined, source=notebook)


def _converted(notebook: Notebook, facts: Facts, options: Options, futures: Sequence[str]) -> Conversion:
    rules = BALANCED_RULES if options.strategy == "balanced" else RULES
    named: Sequence[Change] = ()
    if rules is RULES:
        facts, named = rewrite_first(facts, Rule("wrap", "", wrap.named), options)
    rewritten = rewrite(facts, rules, options, named)
    needs = rewritten.needs | {Need("from __future__", line) for line in futures}
    rewritten = replace(rewritten, needs=needs)
    secrets = list(secret_notes(notebook))
    if secrets:
        rewritten = masked(notebook, rewritten)
    result = Conversion(
        notebook.path,
        "converted",
        changes=rewritten.changes,
        task=task_of(facts),
        source=notebook,
        memory=list(estimates(facts, options)),
    )
    if rewritten.declined:
        declined = _deciding(facts, rewritten.declined)
        is_for_all = any(change.rule in ("finish", "frameworks") for change in declined)
        notes = () if is_for_all else rewritten.notes  # of a script that mending this makes
        return replace(result, status="declined", declined=declined, notes=notes)
    setup = _setup_script(notebook, facts, options)
    script = assemble(
        notebook, facts, rewritten, options, nproc=options.processes, has_setup=setup is not None
    )
    for text in filter(None, (script.text, setup)):
        if error := _syntax_error(text, script if text == script.text else None):
            return _unread(notebook, error)
    files = {SCRIPT: script.text}
    if not options.single_file:
        files[SUPPORT] = support_module(used_names(script.text, module_name(facts), notebook.path.parent))
    if setup is not None:
        files[SETUP] = setup
    remarks = [*secrets, *rewritten.notes, *_newer_python(facts)]
    bundle = _bundle(notebook, script.text, files.get(SUPPORT), setup, options, remarks)
    files.update({f"{KAGGLE}/{name}": text for name, text in bundle.items()})
    return replace(result, files=files, notes=remarks, script=script)


def _deciding(facts: Facts, declined: Sequence[Change]) -> Sequence[Change]:
    """Return what keeps a notebook from being converted, without what would not help it if it were mended."""
    of_all = "frameworks" if facts.last_collective is not None else "finish"
    return [change for change in declined if change.rule == of_all] or declined


def _parse(notebook: Notebook) -> tuple[list[CodeCell], list[Change], list[str]]:
    """Return the parsed cells, what cannot be read, and imports from ``__future__`` that stand in mid-cell."""
    cells: list[CodeCell] = []
    broken: list[Change] = []
    futures: list[str] = []
    code = "\n".join(cell.source for cell in notebook.cells if cell.kind == "code")
    bound = frozenset(
        re.findall(r"^\s*(\w+)\s*(?:[-+*/|&]?=|:)|\bimport (\w+)|\bas (\w+)", code, re.MULTILINE)
    )
    names = frozenset(name for found in bound for name in found if name)
    for cell in notebook.cells:
        if cell.kind != "code":
            continue
        try:
            source, moved = without_futures(with_automagic(cell.source, names))
            futures += moved
            cells.append(parse_cell(cell.number, source))
        except UnreadError as error:
            broken.append(Change("read", Place(cell.number, _line(cell.source, error.lineno)), error.msg))
        except (SyntaxError, ValueError) as error:
            line = _line(cell.source, getattr(error, "lineno", None))
            why = f"this is not valid Python {_PYTHON} ({getattr(error, 'msg', error)}); fix or delete it"
            broken.append(Change("read", Place(cell.number, line), why))
        except (RecursionError, MemoryError):
            why = "an expression here is nested too deeply to be read; split it up"
            broken.append(Change("read", Place(cell.number, 1), why))
    return cells, broken, futures


def _line(source: str, line: int | None) -> int:
    """Return the cell's line that a line of its Python text came from."""
    try:
        return ipython_syntax.to_python(source).notebook_line(line or 1)
    except SyntaxError:  # IPython cannot read the cell either: the line is the cell's own
        return min(line or 1, source.count("\n") + 1)


# What is valid cell by cell and not in one file.
_ACROSS_CELLS = {
    "global declaration": "`global` at the top of a cell changes nothing, and no script takes it; delete it",
    "__future__": "a script takes imports from __future__ at its top alone; move this to the first code cell",
}


def _syntax_error(text: str, script: Script | None) -> Change | None:
    """Compile, never run, what was generated. ``script``: the lines of the text with their cells."""
    try:
        check(text, SCRIPT, parses=True)
    except NOT_PYTHON as error:
        place = script.places.get(getattr(error, "lineno", None) or 0) if script else None
        said = str(getattr(error, "msg", error))
        for sign, why in _ACROSS_CELLS.items():
            if sign in said and place is not None:
                return Change("compile", place, why)
        why = f"the converted script would not be valid Python here ({said}); fix or delete it"
        if place is None:
            why = f"the converted script would not be valid Python ({error}); please report this notebook"
        return Change("compile", place, why)
    return None


def _newer_python(facts: Facts) -> Iterator[Change]:
    for cell in facts.cells:
        if cell.needs is not None:
            version = ".".join(map(str, cell.needs))
            why = f"this is syntax of Python {version}: the script needs that version or a later one to run"
            yield Change("read", Place(cell.number, 1), why)


def _setup_script(notebook: Notebook, facts: Facts, options: Options) -> str | None:
    step = installs.plan(facts)
    if not step.slice:
        return None
    from nb2ddp.rendering import render

    rules = (Rule("surroundings", "", surroundings.services), setup_step.setup_rule(step))
    sliced = rewrite(facts, rules, options)
    sliced_cells = {facts.cell(statement) for statement in step.slice}
    parts = [
        f"# ---- cell {cell.number} ----\n{code}\n"
        for cell in facts.cells
        if (code := sliced.code[cell.number].strip("\n")) and cell in sliced_cells
    ]
    return render(
        "script/setup_env.py.j2",
        notebook=notebook.path.name,
        body="\n".join(parts).strip(),
        shell_output=any("shell_output(" in part for part in parts),
        changes_folder=any("change_folder(" in part for part in parts),
    )


def _bundle(
    notebook: Notebook,
    script: str,
    support: str | None,
    setup: str | None,
    options: Options,
    notes: list[Change],
) -> dict[str, str]:
    sources = input_sources(script)
    if sources.unresolved:
        paths = ", ".join(f"/kaggle/input/{name}" for name in sources.unresolved)
        why = (
            f"the script reads {paths}, which does not say what that is on Kaggle, nor whose: name it when you push, "
            "with --dataset OWNER/NAME, --competition NAME, --model or --kernel"
        )
        notes.append(Change("kaggle", None, why))
    bundle = kaggle_bundle(
        script,
        title=options.title or notebook.path.stem,
        owner=options.owner,
        setup=setup,
        support=support,
        **sources.attached,
        nproc=min(options.processes, GPUS),
        notebook_name=notebook.path.name,
    )
    if sentence := oversize(bundle):
        notes.append(Change("kaggle", None, sentence.removesuffix(".")))
    return bundle
