"""Exchange values and exceptions between ranks that come to one place of the script."""

import contextlib
import io
import itertools
import numbers
import pickle
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.run_state import _T, _run
from nb2ddp.runtime.script_location import _place, _script_frames
from nb2ddp.runtime.store import _CHUNK, _store, _wait_for_key


class _Meeting:
    """One place at which ranks meet: the same number, and the same lines of the script, on each of them.

    In a block that rank 0 runs first it has published before the others come, and they may come to other places.
    """

    def __init__(self) -> None:
        self.lines = tuple(frame.f_lineno for frame in _script_frames())
        self.place = _place()
        self.first = _run.first
        within = f"{self.first.key} {self.lines} " if self.first else ""
        _run.meetings[within] += 1
        self.key = f"{within}{_run.meetings[within]}"

    def has_published(self, rank: int) -> bool:
        """Return whether ``rank`` publishes here: it may not have come, in a block that it has run first."""
        if self.first is None:
            return True
        self.first.wait_for(rank)
        return bool(_store().check([f"{self.key} {rank}"]))

    def publish(self, value: Any, error: BaseException | None = None) -> None:
        """Give the others ``value``, or the exception that they are to raise too."""
        key, packed = f"{self.key} {_run.rank}", io.BytesIO()
        torch.save((self.lines, self.place, value, None if error is None else _as_sent(error)), packed)
        body = packed.getvalue()
        for start in range(0, len(body), _CHUNK):
            _store().set(f"{key} {start}", body[start : start + _CHUNK])
        _store().set(key, str(len(body)))

    def wait_for(self, rank: int) -> Any:
        """Return what ``rank`` publishes, as soon as it does.

        Raises:
            RuntimeError: that rank has ended, or came to another place of the script.
            BaseException: what that rank raised.
        """
        body = _wait_for_key(f"{self.key} {rank}", rank, self.place)
        own_gpu = {f"cuda:{gpu}": f"cuda:{_run.local_rank}" for gpu in range(torch.cuda.device_count())}
        lines, place, value, error = torch.load(io.BytesIO(body), own_gpu or None, weights_only=False)
        if lines != self.lines:
            where = f"rank {rank} is at {place}, rank {_run.rank} at {self.place}"
            raise RuntimeError(f"the ranks went different ways: {where}")
        if error is not None:
            raise _as_raised(error, rank, place)
        return value


def _as_sent(error: BaseException) -> list[bytes]:
    """Return an exception as bytes: as the nearest of its classes that can be pickled, and as one of a built-in class.

    An ``except`` is to catch it on every rank. What it holds that cannot be pickled goes as text.
    """
    # `__reduce__` gives the constructor's arguments; `OSError.args` lacks the file name.
    _, given, *_ = _builtin(type(error)).__reduce__(error)
    made_of = tuple(value if _travels(value) else _text(value) for value in given)
    attributes = {name: value if _travels(value) else None for name, value in error.__dict__.items()}
    kinds = [kind for kind in type(error).__mro__ if issubclass(kind, BaseException)]
    sent, text = [], _text(error)
    for kind, arguments in itertools.product(kinds, (made_of, (text,))):
        with contextlib.suppress(Exception):
            body = pickle.dumps((kind, arguments, attributes))
            if _text(_received(body)) in (text, repr(text)):  # a KeyError's text is its key's repr
                sent.append(body)
                if kind.__module__ == "builtins":
                    break
    return [*sent[:1], *sent[-1:]]


def _text(value: Any) -> str:
    with contextlib.suppress(Exception):
        return str(value)
    return type(value).__name__  # its class may be one that cannot be shown


def _builtin(kind: type[BaseException]) -> Any:
    return next(base for base in kind.__mro__ if base.__module__ == "builtins")


def _travels(value: Any) -> bool:
    with contextlib.suppress(Exception):
        pickle.loads(pickle.dumps(value))
        return True
    return False


def _received(body: bytes) -> BaseException:
    """Return the exception that was sent. Its class may take other arguments, and answer to any attribute."""
    kind, arguments, attributes = pickle.loads(body)
    error: BaseException = kind.__new__(kind, *arguments)
    _builtin(kind).__init__(error, *arguments)  # OSError's `errno`, SystemExit's `code`
    error.__dict__.update(attributes)
    return error


def _as_raised(bodies: list[bytes], rank: int, place: str) -> BaseException:
    error: BaseException = RuntimeError(f"rank {rank} raised what this rank cannot read")
    for body in reversed(bodies):  # a class may be defined on that rank alone
        with contextlib.suppress(Exception):
            error = _received(body)
    if "_from_rank" not in error.__dict__:  # else that rank only passes it on
        notes = error.__dict__.get("__notes__", [])
        error.__dict__["__notes__"] = [*notes, f"raised on rank {rank}, at {place}"]
        error.__dict__["_from_rank"] = rank
    return error


def from_main_process(make: Callable[[], _T]) -> _T:
    """Return on every rank what ``make`` returns on rank 0; the other ranks wait for it and do not call it.

    What ``make`` raises, every rank raises: of a class that cannot be pickled, the nearest base class that can.
    """
    if not _run.sends:
        return make()
    meeting = _Meeting()
    if _run.rank > 0 and meeting.has_published(0):
        value: _T = meeting.wait_for(0)
        return value
    _run.alone += 1
    try:
        value = make()
    except BaseException as error:
        meeting.publish(None, error)
        raise
    finally:
        _run.alone -= 1
    meeting.publish(value)
    return value


def from_all_ranks(value: _T) -> list[_T]:
    """Return the values of all ranks, in the order of ranks, on every rank. Waits for the slowest.

    Raises:
        RuntimeError: a rank has ended, or came to another place of the script.
    """
    if not _run.meets:
        return [value]
    meeting = _Meeting()
    meeting.publish(value)
    return [value if rank == _run.rank else meeting.wait_for(rank) for rank in range(_run.world_size)]


def _exchange(value: _T, error: BaseException | None = None) -> list[_T]:
    """Return the values of all ranks, in their order, through the CPUs' group, or raise one's error. A collective."""
    of_ranks: list[Any] = [None] * _run.world_size
    sent = None if error is None else (_random_state(), _as_sent(error), _place())
    dist.all_gather_object(of_ranks, (value, sent), group=_run.cpu_group)
    for rank, (_, raised) in enumerate(of_ranks):
        if raised is not None:
            _set_random_state(raised[0])
            raise error or _as_raised(raised[1], rank, raised[2])
    return [value for value, _ in of_ranks]


def _take_from_rank_0(held: list[dict[str, Any]]) -> None:
    """Give every rank rank 0's numbers in dicts. A collective, of some bytes."""
    places = [(of, name) for of in held for name in of if isinstance(of[name], numbers.Real)]
    sent = torch.tensor([float(of[name]) for of, name in places], dtype=torch.float64, device="cpu")
    dist.broadcast(sent, 0, group=_run.cpu_group)
    for (of, name), number in zip(places, sent.tolist(), strict=True):
        if float(of[name]) != number:  # 0 on one rank and 0.1 on another
            of[name] = bool(number) if isinstance(of[name], bool) else number


def _largest_of_ranks(numbers: Any) -> Any:
    """Return numbers, each the largest of all ranks'. A collective, which does not wait for GPUs."""
    largest = torch.tensor(numbers, device="cpu")
    dist.all_reduce(largest, dist.ReduceOp.MAX, group=_run.cpu_group)
    return largest.tolist()
