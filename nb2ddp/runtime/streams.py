"""Say where ranks take the end of streamed data otherwise than one process does."""

import math
import sys
from collections.abc import Iterator
from typing import Any

import torch

from nb2ddp.runtime.batch_share import _share_of
from nb2ddp.runtime.run_state import _run, is_main_process


class _CountedStream(torch.utils.data.IterableDataset[Any]):
    """A stream that knows how many rows its last pass had; 0 until the end, and where workers read it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.rows = 0

    def __iter__(self) -> Iterator[Any]:
        self.rows = count = 0
        for row in self.stream:
            count += 1
            yield row
        self.rows = count

    def __getattr__(self, name: str) -> Any:
        if "stream" not in self.__dict__:  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.stream, name)


def _tell_of_the_streams_end(trainer: Any) -> None:
    """Let a Trainer that reads data without a length say once that its last rows made another step.

    The last micro-batches that do not fill a step are kept by one process for the next epoch's first step:
    Transformers does not know that they are the last. Ranks accumulate fewer and may take a step of their own; and
    Accelerate fills a round of the ranks with rows of the first one.
    """
    from transformers import TrainerCallback
    from transformers.trainer_utils import has_length

    data = getattr(trainer, "train_dataset", None)
    if data is None or has_length(data) or hasattr(trainer.get_train_dataloader, "_counts_rows"):
        return
    get_loader = trainer.get_train_dataloader
    current: list[tuple[_CountedStream, bool]] = []

    def counting_loader(*args: Any, **options: Any) -> Any:
        loader = get_loader(*args, **options)
        base = getattr(loader, "base_dataloader", loader)
        shard: Any = getattr(base, "dataset", None)
        current.clear()
        if hasattr(shard, "dataset") and hasattr(shard, "process_index"):  # each rank reads the stream
            stream = shard.dataset = _CountedStream(shard.dataset)
            current.append((stream, True))
        elif shard is not None:  # rank 0 reads it for all
            stream = _CountedStream(shard)
            object.__setattr__(base, "dataset", stream)
            current.append((stream, False))
        return loader

    class TellOfTheEnd(TrainerCallback):
        told = False

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if not current or self.told or not is_main_process:
                return
            (stream, every_rank_reads), share = current[0], _share_of(args)
            step = share.batch_size * share.accumulation_steps
            if not _ends_otherwise(
                stream.rows % step, share, args.gradient_accumulation_steps, every_rank_reads
            ):
                return
            self.told = True
            print(
                f"nb2ddp: WARNING: the streamed data ended with {stream.rows % step} rows that do not fill a step of "
                f"{step}: the ranks take them otherwise than one process does, so losses are near the single "
                "process's from there on and not equal",
                file=sys.stderr,
                flush=True,
            )

    counting_loader._counts_rows = True  # type: ignore[attr-defined]
    trainer.get_train_dataloader = counting_loader
    trainer.add_callback(TellOfTheEnd())


def _ends_otherwise(rest: int, share: Any, accumulation_steps: int, every_rank_reads: bool) -> bool:
    """Return whether ranks fill up the ``rest`` rows, or step where one process waits for more."""
    together = int(share) * _run.world_size
    filled = rest % together if every_rank_reads else rest % together % _run.world_size
    one_waits = math.ceil(rest / share.batch_size) % share.accumulation_steps
    ranks_wait = math.ceil(rest / together) % accumulation_steps
    return bool(filled) or bool(one_waits) != bool(ranks_wait)
