"""Let rank 0 fill a cache first, and the others be as if they had computed what they read from it."""

import collections
import contextlib
import functools
import hashlib
import io
import sys
from collections.abc import Callable
from typing import Any

import torch

from nb2ddp.runtime.object_collectives import _Meeting
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.rank_zero import _all_come, _writer
from nb2ddp.runtime.run_state import _replaced, _run

# packages, their classes, and the methods that compute or read from a cache
_CACHING = (
    ("datasets", "Dataset", "map"),  # filter() comes through it
    ("datasets.builder", "DatasetBuilder", "download_and_prepare"),
    ("joblib.memory", "MemorizedFunc", "__call__"),
)


class main_process_first:
    """Let rank 0 run a block first; then the others run it and find what it left in a cache or a folder.

    Rank 0 begins when all ranks have come: none still reads what it may write. What rank 0 raises, the others raise
    without running the block. Waits however long rank 0 takes. In the block, too, rank 0 alone does what
    `main_process_only` and the like hold, and the others take the values of `from_main_process` that it has left, line
    by line; they call the function themselves where rank 0 did not come, as where they find its cache.
    """

    def __enter__(self) -> None:
        self.meeting, self.seen = _Meeting() if _run.meets else None, contextlib.ExitStack()
        if self.meeting is not None:
            _all_come(self.meeting)
            self.state: Any = None if _run.writes else self.meeting.wait_for(_writer())
            _run.alone, _run.first = 1, self.meeting
            for package, kind, name in _CACHING:
                if package in sys.modules:
                    of = getattr(sys.modules[package], kind)
                    self.seen.enter_context(_replaced(of, **{name: _computed_alike(getattr(of, name))}))

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.meeting is None:
            return
        self.seen.close()
        _run.alone, _run.first = 0, None
        self.meeting.publish(_random_state() if _run.writes and not error else None, error)
        if not _run.writes:
            _set_random_state(self.state)  # rank 0 may have drawn numbers where the others read its cache


def _computed_alike(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that a cache may answer, after which the other ranks are as rank 0 is that has computed it.

    They take rank 0's random state. Where it has changed what the given functions refer to, a counter say, they
    compute it, too.
    """

    @functools.wraps(call)
    def call_alike(self: Any, *args: Any, **options: Any) -> Any:
        if not _run.sends:
            return call(self, *args, **options)
        function: Any = vars(self).get("func") or getattr(vars(self).get("config"), "generator", None)
        meeting, given = _Meeting(), (args, options, function)
        if _run.writes:
            before = _referred(given)
            result = call(self, *args, **options)
            meeting.publish((before != _referred(given), _random_state()))
            return result
        is_answered = meeting.has_published(_writer())
        changes, state = meeting.wait_for(_writer()) if is_answered else (False, ())
        if changes and call.__name__ == "map":
            options["load_from_cache_file"] = False
        elif changes and call.__name__ == "__call__":
            function(*args, **options)
        elif changes and function:
            collections.deque(function(**self.config.gen_kwargs), maxlen=0)
        result = call(self, *args, **options)
        if is_answered:
            _set_random_state(state)
        return result

    return call_alike


def _referred(given: Any) -> str:
    """Return a digest of functions and what they refer to, or "". Models and tokenizers stay what they are."""
    dill: Any = sys.modules.get("datasets.utils._dill")
    transformers: Any = sys.modules.get("transformers")
    kinds = (torch.nn.Module, *([transformers.PreTrainedTokenizerBase] if transformers else []))

    def name(value: Any) -> str | None:
        return type(value).__name__ if isinstance(value, kinds) or value is sys.modules[__name__] else None

    file = io.BytesIO()
    with contextlib.suppress(Exception):  # what cannot be pickled has no cache either
        pickler = dill.Pickler(file, recurse=True)
        pickler.persistent_id = name
        pickler.dump(given)
        return hashlib.sha256(file.getvalue()).hexdigest()
    return ""
