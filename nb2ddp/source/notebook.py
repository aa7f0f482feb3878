"""Read ``.ipynb`` files. The only module that knows nbformat."""

from __future__ import annotations

import logging
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
    """Read a notebook of any nbformat version.

    Stray keys that make a notebook invalid by the schema are accepted: ten real ones of 442 have them,
    and Jupyter opens them all.

    Raises:
        NotebookError: the file is missing, or is not a notebook.
    """
    import nbformat

    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors put a byte order mark there
    except FileNotFoundError:
        raise NotebookError(f"{path} does not exist.") from None
    except IsADirectoryError:
        raise NotebookError(f"{path} is a folder; name a notebook in it.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise NotebookError(f"{path} cannot be read: {error}.") from None
    quiet, was_disabled = logging.getLogger("traitlets"), logging.getLogger("traitlets").disabled
    quiet.disabled = True  # nbformat logs every stray key there
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nb = nbformat.reads(text, as_version=4)
    except Exception as error:  # nbformat raises whatever the malformed JSON runs into
        raise NotebookError(
            f"{path} is not a Jupyter notebook ({type(error).__name__}); open and save it in Jupyter."
        ) from None
    finally:
        quiet.disabled = was_disabled
    try:
        return notebook_of(path, nb)
    except (AttributeError, TypeError):
        raise NotebookError(f"{path} has cells that Jupyter would not write; save it in Jupyter.") from None


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
