"""Let the ranks run a block one after another."""

from typing import Any

from nb2ddp.runtime.object_collectives import _Meeting, from_all_ranks
from nb2ddp.runtime.run_state import _run


class in_turn:
    """Let the ranks run a block one after another; each waits for its turn, and then for the last rank.

    Rank 0 begins when all ranks have come. What a rank raises in its turn, every rank raises; those after it do not
    run the block.
    """

    def __enter__(self) -> None:
        from_all_ranks(None)  # none still reads what rank 0 may write
        self.meeting = _Meeting() if _run.meets else None
        if self.meeting is None:
            return
        if _run.rank > 0:
            try:
                self.meeting.hear(_run.rank - 1)
            except BaseException as error:
                self.meeting.tell(None, error)  # the next rank waits for this one
                raise
        _run.alone += 1

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.meeting is None:
            return
        _run.alone -= 1
        self.meeting.tell(None, error)
        if error is None:
            self.meeting.hear(_run.world_size - 1)
