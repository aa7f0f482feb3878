"""Tell samples by their content: of a data set, of a batch, and of what a model is called with."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

_DIGESTED_ROWS = 64


def digest(value: Any) -> str:
    """Return a digest of the first rows of a data set, or of what was drawn: of numbers and texts alone."""
    try:
        text = repr(_plain(value))
    except Exception:  # a class of the user's: its content cannot be read this way
        text = type(value).__name__
    return _digest(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, int | float | str) or hasattr(value, "tolist"):
        return value
    if hasattr(value, "_fingerprint"):  # a data set: its rows as they are stored, not their file
        value = value.with_format(None)[:_DIGESTED_ROWS]
    elif hasattr(value, "indices"):  # a part of a data set
        value = list(value.indices)
    if isinstance(value, dict):
        return [(key, _plain(part)) for key, part in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value[:_DIGESTED_ROWS]]
    return type(value).__name__


def _values(batch: Any) -> list[Any]:
    """Return the parts of a batch: those of a dictionary or a list, or the one that it is."""
    if hasattr(batch, "keys"):
        return [batch[key] for key in list(batch)]
    return list(batch) if isinstance(batch, list | tuple) else [batch]


def width(batch: Any) -> int | None:
    """Return the length of the first tensor of a batch; None where it has none."""
    torch: Any = sys.modules["torch"]
    tensors = (value for value in _values(batch) if isinstance(value, torch.Tensor) and value.dim())
    return next(map(len, tensors), None)


def counts(batch: Any) -> dict[str, list[int]]:
    """Return what a mean over this batch may be a mean of: of each row the tokens that count, by the tensor."""
    torch: Any = sys.modules["torch"]
    named = dict(batch) if hasattr(batch, "keys") else dict(enumerate(_values(batch)))
    found: dict[str, list[int]] = {}
    for name, value in named.items():
        if not isinstance(value, torch.Tensor) or value.dim() != 2 or value.is_complex():
            continue
        found[f"numbers other than 0 in batch[{name!r}]"] = (value != 0).sum(1).tolist()
        if not value.is_floating_point():
            found[f"labels in batch[{name!r}]"] = (value >= 0).sum(1).tolist()
            found[f"labels after the first in batch[{name!r}]"] = (value[:, 1:] >= 0).sum(1).tolist()
    return found


def rows_of_call(inputs: tuple[Any, ...], options: dict[str, Any]) -> list[str | None]:
    """Return a digest of each row that a model is called with, None for those that cannot be told."""
    batch = options or (inputs[0] if len(inputs) == 1 and hasattr(inputs[0], "keys") else list(inputs))
    count = width(batch)
    if count is None:
        return []
    digests = row_digests(batch, count)
    return [None] * count if digests is None else list(digests)


def row_digests(batch: Any, count: int) -> list[str] | None:
    """Return a digest of each sample's numbers without padding; None where that cannot be told."""
    torch: Any = sys.modules["torch"]
    named = dict(batch) if hasattr(batch, "keys") else {}
    # of several texts, those of the first: input_ids, prompt_input_ids, input_ids_chosen
    ids = next((str(key) for key in named if "input_ids" in str(key)), "")
    mask = named.get(ids.replace("input_ids", "attention_mask"))
    rows = next(
        (v for v in _values(batch) if isinstance(v, torch.Tensor) and v.dim() and len(v) == count), None
    )
    if ids:
        if mask is None or named[ids].shape != mask.shape or len(mask) != count:
            return None
        rows = [row[kept.bool()] for row, kept in zip(named[ids], mask, strict=True)]
    if rows is None:
        return None
    return [_digest(repr(row.detach().cpu().tolist())) for row in rows]
