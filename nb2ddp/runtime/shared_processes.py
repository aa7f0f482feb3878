"""A program that rank 0 alone has started, where every rank reads what it prints or how it ends."""

from collections.abc import Callable
from typing import Any

from nb2ddp.runtime.object_collectives import from_main_process

_VALUES_SENT = (type(None), bool, int, float, str, bytes, list, tuple)


def shared_process(start: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that starts a program as ``start`` does, on rank 0 alone.

    Every rank gets rank 0's exit code and output: each call of the process's methods waits for rank 0.
    """
    return _OfRank0(start)


class _OfRank0:
    """An object of rank 0's. Texts and numbers that its attributes and methods give are sent to all ranks."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what Python or a library looks for, maybe on one rank alone
            raise AttributeError(name)
        return _of_rank_0(lambda: getattr(self._own, name))

    def __repr__(self) -> str:
        return repr(self._own)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _of_rank_0(lambda: self._own(*args, **kwargs))

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return _of_rank_0(lambda: next(self._own))

    def __enter__(self) -> Any:
        return _of_rank_0(lambda: self._own.__enter__())

    def __exit__(self, *error: Any) -> Any:
        return _of_rank_0(lambda: self._own.__exit__(*error))


def _of_rank_0(make: Callable[[], Any]) -> Any:
    """Return rank 0's value; of an object, what stands for it."""
    made: list[Any] = []

    def sent() -> tuple[bool, Any]:
        made.append(make())
        is_plain = isinstance(made[0], _VALUES_SENT)
        return is_plain, made[0] if is_plain else None

    is_plain, value = from_main_process(sent)
    return value if is_plain else _OfRank0(made[0] if made else None)
