"""The parts of a notebook that can hold a secret: cells, texts, and the outputs they show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nb2ddp.regular_files import bytes_of
from nb2ddp.secrets.scan import Secret, Text, scan

_NO_TEXT = ("image/", "audio/", "video/", "font/", "application/pdf", "application/vnd.jupyter.widget-view")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def secrets_in_text(text: str, place: str) -> list[Secret]:
    """Return the secrets in a script or any other text."""
    return scan([Text(place, text)])


def secrets_in_file(path: Path) -> list[Secret]:
    """Return the secrets in a notebook's file; none in one that cannot be read."""
    try:
        data = bytes_of(path)
        notebook = json.loads(data.decode(json.detect_encoding(data), "replace"))
    except (OSError, ValueError, RecursionError):
        return []
    return secrets_in_notebook(notebook, str(path))


def secrets_in_notebook(notebook: Any, name: str = "") -> list[Secret]:
    """Return the secrets in a notebook's JSON, as ``json.loads`` gives it; name: stands before each place.

    The raw JSON is read: `nb2ddp.source.notebook` drops outputs, which play no part in a conversion.
    """
    before = f"{name}: " if name else ""
    return scan([Text(f"{before}{place}", text, is_code) for place, text, is_code in _parts(notebook)])


def _parts(notebook: Any) -> Iterator[tuple[str, str, bool]]:
    """Yield the parts of a notebook: where each is, its text, and whether it is code."""
    if isinstance(notebook, dict):
        for text in _texts(notebook.get("metadata", {})):
            yield "the notebook's metadata", text, False
    number = 0
    for cell in _cells(notebook):
        is_code = cell.get("cell_type") == "code"
        number += is_code
        place = f"cell {number}" if is_code else f"the text after cell {number}"
        yield place, _joined(cell.get("source", cell.get("input", ""))), True
        for text in _texts(cell.get("attachments", {})):
            yield f"an attachment of {place}", text, False
        for text in _texts(cell.get("metadata", {})):
            yield f"the metadata of {place}", text, False
        for text in _texts(cell.get("outputs", [])):
            yield f"the output of cell {number}", _COLOUR.sub("", text), False


def _cells(notebook: Any) -> list[dict[str, Any]]:
    if not isinstance(notebook, dict):
        return []
    sheets = notebook.get("worksheets")
    holders = [notebook, *(sheets if isinstance(sheets, list) else [])]
    found = [holder.get("cells") for holder in holders if isinstance(holder, dict)]
    return [cell for cells in found if isinstance(cells, list) for cell in cells if isinstance(cell, dict)]


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield all texts in an output, however deep; a list of texts is one text in lines."""
    if isinstance(value, str) or (isinstance(value, list) and value and isinstance(value[0], str)):
        yield _joined(value)
    elif isinstance(value, dict) and depth < 20:
        for key, part in value.items():
            if not str(key).startswith(_NO_TEXT):
                yield from _texts(part, depth + 1)
    elif isinstance(value, list) and depth < 20:
        for part in value:
            yield from _texts(part, depth + 1)


def _joined(source: Any) -> str:
    if isinstance(source, str):
        return source
    return "".join(map(str, source)) if isinstance(source, list) else ""
