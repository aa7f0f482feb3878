"""Read ``.ipynb`` files and ``# %%`` scripts. The only module that knows nbformat and jupytext."""

from __future__ import annotations

import logging
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nb2ddp.errors import NotebookError


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
    def stem(self) -> str:
        return self.path.stem


def read_notebook(path: Path) -> Notebook:
    """Read a notebook of any nbformat version, or a ``.py`` script with ``# %%`` cells.

    Raises:
        NotebookError: the file is missing, or is not a notebook.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors put a byte order mark there
    except FileNotFoundError:
        raise NotebookError(f"{path} does not exist.") from None
    except IsADirectoryError:
        raise NotebookError(f"{path} is a folder; name a notebook in it.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise NotebookError(f"{path} cannot be read: {error}.") from None
    return parse_notebook(path, text)


def parse_notebook(path: Path, text: str) -> Notebook:
    """Return the notebook that a file's text is; of ``path`` only the name and the suffix matter.

    Stray keys that make a notebook invalid by the schema are accepted: ten real ones of 442 have them,
    and Jupyter opens them all.

    Raises NotebookError for a text that is no notebook.
    """
    node = _percent(path, text) if path.suffix == ".py" else _ipynb(path, text)
    try:
        return notebook_of(path, node)
    except (AttributeError, TypeError):
        raise NotebookError(f"{path} has cells that Jupyter would not write; save it in Jupyter.") from None


def _ipynb(path: Path, text: str) -> Any:
    import nbformat

    quiet, was_disabled = logging.getLogger("traitlets"), logging.getLogger("traitlets").disabled
    quiet.disabled = True  # nbformat logs every stray key there
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return nbformat.reads(text, as_version=4)
    except Exception as error:  # nbformat raises whatever the malformed JSON runs into
        raise NotebookError(
            f"{path} is not a Jupyter notebook ({type(error).__name__}); open and save it in Jupyter."
        ) from None
    finally:
        quiet.disabled = was_disabled


def _percent(path: Path, text: str) -> Any:
    """Return the notebook in a script with ``# %%`` cells; commented magics become magics again."""
    if not _CELL.search(text):
        raise NotebookError(
            f"{path} is a Python script without `# %%` lines, which divide it into cells; "
            "put one above each part, or give a notebook."
        )
    try:
        import jupytext
    except ModuleNotFoundError:
        raise NotebookError(f"{path}: reading `# %%` scripts needs jupytext: pip install jupytext.") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return jupytext.reads(text, fmt="py:percent")
    except Exception as error:  # its header is YAML, which may be anything
        raise NotebookError(
            f"{path} is not a script that jupytext can read ({type(error).__name__}); mend its header."
        ) from None


_CELL = re.compile(r"^# ?%%", re.MULTILINE)


def notebook_of(path: Path, nb: Any) -> Notebook:
    """The notebook in an nbformat node (version 4) that was read from ``path``."""
    cells, number = [], 0
    for cell in nb.cells:
        is_code = cell.cell_type == "code"
        number += is_code
        source = _whole(cell.source.replace("\r\n", "\n").replace("\r", "\n"))
        cells.append(Cell(cell.cell_type, source, number if is_code else 0))
    language = _language(nb.metadata)
    return Notebook(path, tuple(cells), "python" if language.startswith("ipython") else language)


def _language(metadata: Any) -> str:
    """What the kernel speaks; Python where the notebook does not tell."""
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        entry = metadata.get(key)
        if isinstance(entry, dict) and isinstance(entry.get(name), str) and entry[name]:
            return str(entry[name]).lower()
    return "python"


def _whole(text: str) -> str:
    """JSON may hold halves of characters, which no file can: pairs are joined, lone ones become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
