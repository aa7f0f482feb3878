"""Find the lines of a notebook's file on which its cells stand, for what annotates files by line."""

from __future__ import annotations

import contextlib
import json

from nb2ddp.errors import NotebookError
from nb2ddp.regular_files import bytes_of
from nb2ddp.source.notebook import Notebook, decoded

_MOST_MISSED = 20  # cells, each of which costs a search to the end of the file


def file_lines(notebook: Notebook) -> dict[int, int]:
    """Return the line of the file (from 1) on which each code cell begins, by the cell's number.

    Jupyter writes each line of a cell on a line of its own. A cell that was written otherwise has none.
    """
    try:
        text = decoded(bytes_of(notebook.path), notebook.path)
    except (OSError, NotebookError):
        return {}
    is_json = notebook.path.suffix != ".py"
    written = [_source_line(line) if is_json else line for line in text.split("\n")]
    found: dict[int, int] = {}
    at = missed = 0
    for cell in notebook.cells:
        lines = cell.source.removesuffix("\n").split("\n")
        if not cell.number or not cell.source.strip() or missed > _MOST_MISSED:
            continue
        for start in range(at, len(written) - len(lines) + 1):
            if written[start] == lines[0] and written[start : start + len(lines)] == lines:
                found[cell.number], at = start + 1, start + len(lines)
                break
        else:
            missed += 1
    return found


def _source_line(line: str) -> str | None:
    """Return the line of code in a line of JSON such as ``"x = 1\\n",``; None where there is none."""
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(line.strip().removesuffix(","))
        return value.removesuffix("\n") if isinstance(value, str) else None
    return None
