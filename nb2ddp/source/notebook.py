"""Read ``.ipynb`` files, ``# %%`` scripts and marimo's notebooks. The only module that knows nbformat and jupytext."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nb2ddp.errors import NotebookError
from nb2ddp.regular_files import bytes_of
from nb2ddp.source.marimo import is_marimo, marimo_cells

MOST_BYTES = 100_000_000
"""The largest notebook that is read, wherever it comes from: what Jupyter itself opens with patience."""

# Of JSON, Python makes up to thirty times as many bytes.
_MOST_CONTAINERS, _MOST_VALUES = 150_000, 3_000_000

_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Cell:
    """One cell. ``number`` counts code cells from 1, as people do; it is 0 for text."""

    kind: str
    source: str
    number: int


@dataclass(frozen=True)
class Notebook:
    """A notebook's cells, with the language that its kernel speaks."""

    path: Path
    cells: tuple[Cell, ...]
    language: str

    @property
    def code_size(self) -> int:
        """Return about how many tokens the code has; a cell counts for twenty at least."""
        sources = (cell.source for cell in self.cells if cell.kind == "code")
        return sum(max(20, sum(1 for _ in _TOKEN.finditer(source))) for source in sources)


def read_notebook(path: Path) -> Notebook:
    """Read a notebook of any nbformat version, or a ``.py`` script with ``# %%`` cells.

    Raises:
        NotebookError: the file is missing, or is not a notebook.
    """
    return parse_notebook(path, _text(path))


def is_notebook(path: Path) -> bool:
    """Return whether a file is taken for a notebook by its name, or for one of marimo's by its text.

    A ``.py`` file with ``# %%`` cells may be a script that is to run as it is: it is none here.
    """
    if path.suffix != ".py":
        return path.suffix == ".ipynb"
    try:
        return is_marimo(bytes_of(path).decode("utf-8", "replace"))
    except OSError:
        return False


def has_cells(path: Path) -> bool:
    """Return whether a file is a notebook, or a script with ``# %%`` cells and no notebook of its name beside it."""
    if path.suffix != ".py" or is_notebook(path):
        return path.suffix in (".ipynb", ".py")
    try:  # what jupytext pairs with a notebook is the same notebook once more
        return not path.with_suffix(".ipynb").exists() and bool(_CELL.search(_text(path)))
    except NotebookError:
        return False


def parse_notebook(path: Path, text: str) -> Notebook:
    """Return the notebook that a file's text is; of ``path`` only the name and the suffix matter.

    Stray keys that make a notebook invalid by the schema are accepted: ten real ones of 442 have them,
    and Jupyter opens them all.

    Raises NotebookError for a text that is no notebook, or is too much to be read.
    """
    if len(text) > MOST_BYTES:
        raise NotebookError(_TOO_LARGE.format(path, MOST_BYTES / 1e6))
    if sum(map(text.count, "{[")) > _MOST_CONTAINERS or text.count(",") > _MOST_VALUES:
        raise NotebookError(f"{path} holds more than a notebook's cells; {_CLEAR}")
    node = _percent(path, text) if path.suffix == ".py" else _ipynb(path, text)
    try:
        return notebook_of(path, node)
    except (AttributeError, TypeError, KeyError, ValueError):
        raise NotebookError(f"{path} has cells that Jupyter would not write; save it in Jupyter.") from None


@contextlib.contextmanager
def without_iri_grammars() -> Iterator[None]:
    """Import nbformat or jupytext here: jsonschema, which they import, compiles no grammars of IRIs.

    Where JupyterLab is installed it compiles 38, which takes longer than a conversion. They serve a format check
    that nbformat does not ask for.
    """
    grammars = "rfc3987_syntax"
    if "jsonschema" in sys.modules or grammars in sys.modules:
        yield
        return
    sys.modules[grammars] = None  # type: ignore[assignment]  # an import of it fails: jsonschema does without
    try:
        yield
    finally:
        sys.modules.pop(grammars, None)


def _ipynb(path: Path, text: str) -> Any:
    with without_iri_grammars():
        import nbformat
    quiet, was_disabled = logging.getLogger("traitlets"), logging.getLogger("traitlets").disabled
    quiet.disabled = True  # nbformat logs every stray key there
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return nbformat.reads(text, as_version=4)
    except Exception:  # nbformat raises whatever the malformed JSON runs into
        if (completed := _with_metadata(text)) != text:
            return _ipynb(path, completed)
        kinds = (
            ""
            if path.suffix == ".ipynb"
            else " Notebooks end with .ipynb, or with .py (marimo's, or `# %%` cells)."
        )
        raise NotebookError(f"{path} is not a Jupyter notebook: {_reason(text)}.{kinds}") from None
    finally:
        quiet.disabled = was_disabled


def _with_metadata(text: str) -> str:
    """Return a notebook with empty metadata in the cells that have none: GitHub and Colab read these."""
    with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError):
        content = json.loads(text)
        for cell in content["cells"]:
            cell.setdefault("metadata", {})
        return json.dumps(content)
    return text


def _reason(text: str) -> str:
    """Return why a text is no notebook, and what to do."""
    if not text.strip():
        return "it is empty; save it again, or take an earlier checkpoint of it"
    try:
        content = json.loads(text)
    except ValueError as error:
        line = f" from line {error.lineno} on" if isinstance(error, json.JSONDecodeError) else ""
        return f"it is not JSON{line}; if it was cut off on its way, fetch it again"
    except RecursionError:
        return "its JSON is nested too deeply"
    if not isinstance(content, dict) or not isinstance(content.get("cells", content.get("worksheets")), list):
        return "it is JSON, but has no list of cells; give the notebook itself"
    if isinstance(version := content.get("nbformat"), int) and version > 4:
        return f'its format is version {version}, which Jupyter does not know; write "nbformat": 4 at its end'
    return "its cells are not as Jupyter writes them; open and save it in Jupyter"


def _percent(path: Path, text: str) -> Any:
    """Return the notebook in a script with ``# %%`` cells, or in marimo's; commented magics become magics again."""
    if is_marimo(text):
        return _marimo(path, text)
    if not _CELL.search(text):
        text = _EXPORTED_CELL.sub("# %%", text)
    if not _CELL.search(text):
        raise NotebookError(
            f"{path} is a Python script without `# %%` lines, which divide it into cells; "
            "put one above each part, or give a notebook (.ipynb, or marimo's .py)."
        )
    try:
        with without_iri_grammars():
            import jupytext
    except ModuleNotFoundError:
        raise NotebookError(f"{path}: reading `# %%` scripts needs jupytext: pip install jupytext.") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fmt = {"extension": ".py", "format_name": "percent", "comment_magics": False}
            node = jupytext.reads(text, fmt=fmt)
    except Exception as error:  # its header is YAML, which may be anything
        raise NotebookError(
            f"{path} is not a script that jupytext can read ({type(error).__name__}); fix its header."
        ) from None
    head = text.partition("# %%")[0]
    stay = re.search(r"(?im)^#\s+comment_magics:\s*false\b", head)
    for cell in () if stay else node.cells:
        active = "active" in cell.metadata or any("active-" in tag for tag in cell.metadata.get("tags", ()))
        done = active or cell.source.startswith("%%")  # uncommented by jupytext
        if cell.cell_type == "code" and not done:
            cell.source = _with_magics(cell.source)
    return node


def _marimo(path: Path, text: str) -> Any:
    with without_iri_grammars():
        import nbformat.v4 as v4
    kinds: dict[bool, Any] = {True: v4.new_markdown_cell, False: v4.new_code_cell}
    new: Any = v4.new_notebook
    return new(cells=[kinds[cell.is_text](cell.source) for cell in marimo_cells(path, text)])


_CELL = re.compile(r"^# ?%%", re.MULTILINE)
_EXPORTED_CELL = re.compile(r"^# In\[[ \d]*\]:$", re.MULTILINE)  # of `jupyter nbconvert --to script`
# `# !pip install`, `# %cd x`, `# files = !ls`. jupytext also takes `# copy the weights` for a command
_COMMENTED_MAGIC = re.compile(
    r"\s*(# ?)+\s*(\w+\s*=\s*)?(%{1,2}[a-zA-Z]|!!?\s*[\w.~$\\/{}])(?!.*# *noescape)"
)


def _with_magics(source: str) -> str:
    """Return a cell's code with each magic one comment mark less. Texts over several lines stay as they are."""
    from jupytext.stringparser import StringParser

    parser, lines, goes_on, before = StringParser("python"), source.splitlines(), False, ""
    for number, line in enumerate(lines):
        if not parser.is_quoted() and (goes_on or _COMMENTED_MAGIC.match(line)):
            made = re.sub(r"^(\s*)# ?", r"\1", line)
            # `#     !pip` belongs into a block, or to a block that is commented with it
            in_block = before.endswith(":") or _indent(before) == _indent(made)
            if goes_on or in_block or not line.startswith("#  "):
                lines[number] = made
                goes_on = line.endswith("\\")
        parser.read_line(line)
        if lines[number].strip() and not lines[number].lstrip().startswith("#"):
            before = lines[number].rstrip()
    return "\n".join(lines)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _text(path: Path) -> str:
    """Return the text of a regular file. Pipes and devices are not opened for long: they may never end."""
    try:
        data = bytes_of(path, MOST_BYTES)
    except FileNotFoundError:
        raise NotebookError(f"{path} does not exist.") from None
    except IsADirectoryError:
        raise NotebookError(f"{path} is a folder; name a notebook in it.") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if getattr(error, "errno", None) == errno.EFBIG:
            raise NotebookError(_TOO_LARGE.format(path, MOST_BYTES / 1e6)) from None
        raise NotebookError(f"{path} cannot be read: {getattr(error, 'strerror', error)}.") from None
    return decoded(data, path)


_CLEAR = "clear its outputs with `jupyter nbconvert --clear-output --inplace`."
_TOO_LARGE = f"{{}} is larger than {{:.0f}} MB; {_CLEAR}"


def decoded(data: bytes, shown: object) -> str:
    """Return the text of a notebook's bytes, in any encoding of JSON.

    Raises NotebookError for other encodings.
    """
    try:
        return data.decode(json.detect_encoding(data))  # a byte order mark, or UTF-16 by some editors
    except UnicodeDecodeError:
        raise NotebookError(
            f"{shown} cannot be read: it is not text in UTF-8; open and save it in Jupyter."
        ) from None


def notebook_of(path: Path, nb: Any) -> Notebook:
    """Return the notebook in an nbformat node (version 4) that was read from ``path``."""
    cells, number = [], 0
    for cell in nb.cells:
        is_code = cell.cell_type == "code"
        number += is_code
        source = _whole(cell.source.replace("\r\n", "\n").replace("\r", "\n"))
        if not is_code:
            source = source.replace("\0", "\ufffd")  # it becomes a comment, and Python refuses NUL there too
        cells.append(Cell(cell.cell_type, source, number if is_code else 0))
    language = _language(nb.metadata)
    return Notebook(path, tuple(cells), "python" if language.startswith("ipython") else language)


def _language(metadata: Any) -> str:
    """Return the kernel's language; Python where the notebook names none, or says that its cells are Python."""
    info = metadata.get("language_info")
    if isinstance(info, dict) and info.get("file_extension") == ".py":
        return "python"  # a kernel may have any name
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        entry = metadata.get(key)
        if isinstance(entry, dict) and isinstance(entry.get(name), str) and entry[name]:
            return str(entry[name]).lower()
    return "python"


def _whole(text: str) -> str:
    """Join pairs of surrogates, which JSON may hold and no file can; lone ones become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
