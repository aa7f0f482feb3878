"""Tell samples by their content: of a data set, of a batch, and of what a model is called with."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

_DIGESTED_ROWS = 64


def content(dataset: Any) -> tuple[int | None, str | None]:
    """Return a data set's length and a digest of its first rows as they are stored, without transforms."""
    try:
        size = len(dataset)
        if hasattr(dataset, "with_format"):
            rows: Any = dataset.with_format(None)[:_DIGESTED_ROWS]
        elif isinstance(dataset, list):
            rows = dataset[:_DIGESTED_ROWS]
        else:
            return size, None
        text = json.dumps(rows, default=lambda value: type(value).__name__)
        return size, hashlib.sha256(text.encode()).hexdigest()[:12]
    except Exception:  # a stream, or a class of the user's: its content cannot be read this way
        return None, None


def width(batch: Any) -> int | None:
    """Return the length of the first tensor of a batch; None where it has none."""
    torch: Any = sys.modules["torch"]
    values = (
        batch.values() if hasattr(batch, "values") else batch if isinstance(batch, list | tuple) else [batch]
    )
    return next((len(value) for value in values if isinstance(value, torch.Tensor) and value.dim()), None)


def counts(batch: Any) -> dict[str, list[int]]:
    """Return what a mean over this batch may be a mean of: of each row the tokens that count, by the tensor."""
    torch: Any = sys.modules["torch"]
    named = (
        batch.items()
        if hasattr(batch, "items")
        else enumerate(batch if isinstance(batch, list | tuple) else ())
    )
    found: dict[str, list[int]] = {}
    for name, value in named:
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
    values = list(named.values() if named else batch if isinstance(batch, list | tuple) else [batch])
    rows = next((v for v in values if isinstance(v, torch.Tensor) and v.dim() and len(v) == count), None)
    if ids:
        if mask is None or named[ids].shape != mask.shape or len(mask) != count:
            return None
        rows = [row[kept.bool()] for row, kept in zip(named[ids], mask, strict=True)]
    if rows is None:
        return None
    return [hashlib.sha256(repr(row.detach().cpu().tolist()).encode()).hexdigest()[:12] for row in rows]
