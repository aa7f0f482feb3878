"""Let rank 0 do for all ranks what must be done once: write files."""

import os
from typing import Any

from nb2ddp.runtime.object_collectives import _Meeting
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.run_state import _run


class main_process_only:
    """Let rank 0 alone run a block when all ranks have come to it; the others wait until it is through. Use as::

        with ddp.main_process_only() as is_main:
            if is_main:
                model.save_pretrained("folder")

    What rank 0 raises in the block, every rank raises; ``break``, ``continue`` and ``return`` release the others.
    Afterwards all ranks have rank 0's random generators. Machines without a shared disk (NB2DDP_SHARED_FS=0)
    run the block once each. Waits however long rank 0 takes, and notices when it has ended.
    """

    # Classes, for a generator cannot raise the StopIteration that rank 0 has raised.

    def __enter__(self) -> bool:
        self.meeting = _Meeting() if _run.sends and not _run.repeats else None
        if self.meeting is None:
            return _run.writes or _run.world_size == 1 or _run.repeats
        if self.meeting.first is None:
            _all_come(self.meeting)
        _run.alone += _run.writes
        return _run.writes

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.meeting is None:
            return
        if _run.writes:
            _run.alone -= 1
            self.meeting.publish(None if error else _random_state(), error)
        elif error is None and self.meeting.has_published(_writer()):
            _set_random_state(self.meeting.wait_for(_writer()))


def _all_come(before: _Meeting) -> None:
    """Let the rank that writes wait for those that may still read what it is about to change: a folder, say.

    Where one of them does not come, the rank that writes tells the others, which wait for it in the meeting ``before``.
    """
    coming = _Meeting()
    if not _run.writes:
        coming.publish(None)
        return
    size = _run.world_size if _run.one_disk else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    try:
        for rank in range(_run.rank + 1, _run.rank + size):
            coming.wait_for(rank)
    except BaseException as error:
        before.publish(None, error)
        raise


def _writer() -> int:
    """Return the rank that makes the files of this rank's disk."""
    return 0 if _run.one_disk else _run.rank - _run.local_rank
