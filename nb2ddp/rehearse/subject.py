"""What is rehearsed: a converted script, and the notebook's own code to compare it with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nb2ddp import ddp_folder
from nb2ddp.ddp_folder import SCRIPT
from nb2ddp.errors import FolderError, RehearsalError
from nb2ddp.options import Options
from nb2ddp.source.notebook import Notebook, read_notebook
from nb2ddp.source.syntax_check import NOT_PYTHON, parse

if TYPE_CHECKING:
    from nb2ddp.analysis.facts import Facts

_SEEDED_START = re.compile(r"^(?:[\w, ]+ = )?(?:\w+\.)?init\((?:seed=)?(?P<seed>\d+)[,)]", re.MULTILINE)
_STARTS_RANKS = re.compile(
    r"(?:.*\.)?(?:mp|multiprocessing)\.(?:spawn|start_processes)|(?:.*\.)?notebook_launcher"
)
_SEEDS = re.compile(r"(?:[\w.]+\.)?(?:manual_seed|set_seed|seed_everything|enable_full_determinism)\(")
_GIVEN_BY_TRAINING = frozenset(
    "input_ids attention_mask labels loss logits position_ids train_runtime train_loss".split()
)

_GENERATES = "it trains on what its model generates, which is drawn anew in each process"


@dataclass(frozen=True)
class Subject:
    """``script`` is what is under test, ``reference`` what it promises to train like.

    ``files``: what lies beside the notebook and is named in it. ``modules``: the text of each module that lies
    beside the script, by file name; the notebook's own code does not get them. ``columns`` are
    those that the notebook reads of its data, ``markers`` the texts around an answer, with which it masks the
    rest. ``other_losses`` says why one process and several compute other losses by nature; empty where they
    are to agree. ``handmade``: the script need not be a conversion of ours; ``arguments`` are those of its command
    line, ``script_files`` what lies beside it and is named in it.
    """

    name: str
    script: str
    reference: str
    files: tuple[Path, ...] = ()
    modules: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    markers: tuple[str, str] | None = None
    other_losses: str = ""
    handmade: bool = False
    arguments: tuple[str, ...] = ()
    script_files: tuple[Path, ...] = ()


def subject_of(target: Path, options: Options | None = None) -> Subject:
    """Return the subject for a notebook, which is converted now with ``options``, or for the folder of a conversion.

    Raises:
        NotebookError: the notebook cannot be read.
        RehearsalError: there is nothing to rehearse.
    """
    from nb2ddp.conversion.pipeline import convert_notebook

    if not target.exists():
        raise RehearsalError(f"{target} does not exist.")
    if target.is_dir():
        try:
            folder = ddp_folder.read(target)
        except FolderError as error:
            raise RehearsalError(str(error)) from None
        beside = {path.name: _text(path) for path in target.glob("*.py") if path.is_file()}
        if folder.source is None:
            raise RehearsalError(f"{target} holds no {ddp_folder.REPORT} that names its notebook.")
        if folder.notebook is None:
            raise RehearsalError(
                f"The notebook {folder.source}, which {target} was made from, is not found; rehearse that."
            )
        return _subject(read_notebook(folder.notebook), folder.script, beside)
    if target.suffix != ".ipynb":
        raise RehearsalError(
            f"{target} is neither a notebook nor the folder of a conversion, so there is nothing to compare."
        )
    notebook = read_notebook(target)
    conversion = convert_notebook(notebook, options=options or Options())
    if conversion.status != "converted":
        raise RehearsalError(f"{target} was not converted: {conversion.declined[0].why.rstrip('.')}.")
    beside = {name: text for name, text in conversion.files.items() if re.fullmatch(r"[^/]+\.py", name)}
    return _subject(notebook, conversion.files[SCRIPT], beside)


def subject_of_script(path: Path, script: Path, arguments: Sequence[str] = ()) -> Subject:
    """Return the subject for a notebook and any script that is to train like it on several ranks.

    Raises:
        NotebookError: the notebook cannot be read.
        RehearsalError: one of them does not exist, or the script is no Python.
    """
    for target, what in ((path, "notebook"), (script, "script")):
        if not target.exists():
            raise RehearsalError(f"There is no {what} {target}.")
        if target.is_dir():
            raise RehearsalError(f"{target} is a folder; name the {what} in it.")
    if path.suffix != ".ipynb":
        raise RehearsalError(f"{path} is no notebook: its name does not end with .ipynb.")
    if script.suffix == ".ipynb":
        raise RehearsalError(f"{script} is a notebook; `nb2ddp convert` makes a script of it.")
    text = _text(script)
    try:
        tree = parse(text)
    except NOT_PYTHON as error:
        where, why = f"{script}", f"{error}"
        if isinstance(error, SyntaxError):
            where, why = f"{script}, line {error.lineno}" if error.lineno else where, error.msg
        raise RehearsalError(f"{where} is no Python: {why}.") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _STARTS_RANKS.fullmatch(name := ast.unparse(node.func)):
            raise RehearsalError(
                f"{script} starts its ranks itself ({name} in line {node.lineno}), and a script is judged as torchrun "
                "starts it: once for each rank. Call what each process runs directly, with RANK and WORLD_SIZE from "
                "the environment."
            )
    beside = {
        file.name: _text(file) for file in script.parent.glob("*.py") if file.is_file() and file != script
    }
    return replace(
        _subject(read_notebook(path), text, beside, _seed_of(tree)),
        handmade=True,
        arguments=tuple(arguments),
        script_files=tuple(_named(script.parent, text)),
    )


def _seed_of(tree: ast.Module) -> int | None:
    """Return the first seed that a script sets with a constant, for a notebook that sets none."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=function, args=[ast.Constant(value=int(seed))]):
                if _SEEDS.match(f"{ast.unparse(function)}("):
                    return seed
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RehearsalError(f"{path} cannot be read: {error}.") from None


def _subject(notebook: Notebook, script: str, beside: Mapping[str, str], seed: int | None = None) -> Subject:
    """Return the subject; ``seed``: what a script by hand sets, for a notebook that sets none."""
    from nb2ddp.conversion.task import task_of

    if ddp_folder.spreads(script):
        raise RehearsalError(
            f"{notebook.path.name} is converted with --strategy balanced: one process trains on all GPUs, as the "
            "notebook does, and there are no ranks to compare. Rehearse the notebook with --strategy ddp."
        )
    own = own_code(notebook)
    seeds = seeds_of(script) or ("" if seed is None or _SEEDS.search(own) else _seeding(seed))
    reference = seeds + own
    code = "\n".join(cell.source for cell in notebook.cells if cell.kind == "code")
    try:
        tree = parse(reference)
    except NOT_PYTHON as error:
        raise RehearsalError(
            f"{notebook.path} cannot be rehearsed: as one file it is no Python ({error})."
        ) from None
    return Subject(
        notebook.path.name,
        script,
        reference,
        files=tuple(_named(notebook.path.parent, code)),
        modules=beside,
        columns=tuple(sorted(_columns(tree))),
        markers=_markers(tree),
        other_losses=_GENERATES if task_of(_facts(notebook)) == "grpo" else "",
    )


def _facts(notebook: Notebook) -> Facts:
    from nb2ddp.analysis.facts import Facts
    from nb2ddp.source.cells import parse_cell

    return Facts([parse_cell(cell.number, cell.source) for cell in notebook.cells if cell.kind == "code"])


def own_code(notebook: Notebook) -> str:
    """Return the notebook's own Python, cell by cell, as IPython runs it.

    Shell lines and magics stay what IPython makes of them, calls of ``get_ipython()``.
    """
    from nb2ddp.rewriting.engine import rewrite

    facts = _facts(notebook)
    code = rewrite(facts, (), Options()).code
    return "\n".join(code[cell.number] for cell in facts.cells) + "\n"


def seeds_of(script: str) -> str:
    """Return the lines that seed the notebook's own code as the runtime's ``init`` does, with its argument ``seed``."""
    started = _SEEDED_START.search(script)
    return _seeding(int(started["seed"])) if started else ""


def _seeding(seed: int) -> str:
    of_numpy = f"try:\n    import numpy\n    numpy.random.seed({seed})\nexcept ImportError:\n    pass\n"
    return f"import random\nrandom.seed({seed})\nimport torch\ntorch.manual_seed({seed})\n{of_numpy}"


def _named(folder: Path, text: str) -> Iterator[Path]:
    """Yield what lies in a folder and is named in a text of code."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        named = re.search(rf"(?<![\w.-]){re.escape(path.name)}(?![\w-])", text)
        imported = path.suffix == ".py" and re.search(
            rf"^\s*(?:import|from)\b[^\n#]*\b{re.escape(path.stem)}\b", text, re.MULTILINE
        )
        if path.suffix != ".ipynb" and (named or imported):
            yield path


def _columns(tree: ast.AST) -> set[str]:
    """Return the string keys that are read before the notebook itself writes them."""
    read: dict[str, int] = {}
    written: dict[str, int] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(slice=ast.Constant(value=str(name)), ctx=context):
                lines = read if isinstance(context, ast.Load) else written
                lines[name] = min(lines.get(name, node.lineno), node.lineno)
            case ast.keyword(arg="dataset_text_field", value=ast.Constant(value=str(name))):
                read.setdefault(name, node.lineno)
    columns = {name for name, line in read.items() if line <= written.get(name, line)}
    return {name for name in columns if name.isidentifier()} - _GIVEN_BY_TRAINING


def _markers(tree: ast.AST) -> tuple[str, str] | None:
    """Return ``instruction_part`` and ``response_part`` of train_on_responses_only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            said = {
                keyword.arg: keyword.value.value
                for keyword in node.keywords
                if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str)
            }
            if {"instruction_part", "response_part"} <= said.keys():
                return said["instruction_part"], said["response_part"]
    return None
