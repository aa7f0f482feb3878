"""Put what a set holds into one order on all ranks."""

import contextlib
import io
import pickle
from collections.abc import Collection
from typing import Any

import torch

from nb2ddp.runtime.object_collectives import from_all_ranks, from_main_process
from nb2ddp.runtime.run_state import _T, _run


def same_order(values: Collection[_T]) -> list[_T]:
    """Return each rank's own values in the order that they have on rank 0. Waits for all ranks.

    Strings in a set have another order in each process. Every rank keeps its own order where they cannot be told from
    one another on all ranks: tensors and modules, which no other process has, and functions without a name.
    """
    own = list(values)
    if not _run.meets:
        return own
    order = from_main_process(lambda: _as_bytes(own))
    if order is None:
        return own
    ordered: list[_T] | None = None
    with contextlib.suppress(Exception):  # values of any kind are unpickled, hashed and compared
        by_key = {_key(value): value for value in own}
        keys = [_key(value) for value in pickle.loads(order)]
        if len(keys) == len(own) and set(keys) == set(by_key):
            ordered = [by_key[key] for key in keys]
    if not all(from_all_ranks(ordered is not None)):
        return own
    assert ordered is not None
    return ordered


class _Pickler(pickle.Pickler):
    """Pickle what is the same in all processes; a model's weights would be copies, and large."""

    def persistent_id(self, value: Any) -> None:
        if isinstance(value, torch.Tensor | torch.nn.Module):
            raise pickle.PicklingError


def _as_bytes(values: list[Any]) -> bytes | None:
    """Return pickled values; None for those that cannot be sent."""
    packed = io.BytesIO()
    try:
        _Pickler(packed).dump(values)
    except Exception:  # __reduce__ of any class may raise anything
        return None
    return packed.getvalue()


def _key(value: Any) -> Any:
    """Return what tells a value from others; a NaN, which is not equal to itself, by its text."""
    return value if value == value else repr(value)
