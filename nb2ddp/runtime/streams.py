"""Let a Trainer's ranks read a stream as one process does, and say where they take its end otherwise."""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import torch

from nb2ddp.runtime.batch_share import _share_of
from nb2ddp.runtime.run_state import _run, _warn, is_main_process


class _CountedStream(torch.utils.data.IterableDataset[Any]):
    """A stream that knows how many rows its last pass had; 0 until the end, and where worker processes read it.

    Of a data set of several files Accelerate would give each rank its own files, which are other rows than those of
    the notebook's batches. Of this it cannot tell.
    """

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


def _share_stream(trainer: Any) -> None:
    """Let all ranks read a streamed data set in the notebook's order, and warn once if its end changes a step.

    With accumulation, one process keeps the last micro-batches that do not fill a step for the next epoch's first one:
    Transformers does not know that they are the last. Ranks accumulate fewer and may take a step of their own. And
    Accelerate fills the ranks' last round with rows of the first one.
    """
    from transformers import TrainerCallback
    from transformers.trainer_utils import has_length

    data = getattr(trainer, "train_dataset", None)
    if data is None or has_length(data) or hasattr(trainer.get_train_dataloader, "_shares_stream"):
        return
    get_loader = trainer.get_train_dataloader
    current: list[tuple[_CountedStream, bool]] = []

    def sharing_loader(*args: Any, **options: Any) -> Any:
        data, config = trainer.train_dataset, trainer.accelerator.dataloader_config
        trainer.train_dataset = stream = _CountedStream(data)
        chosen = config.dispatch_batches
        if chosen is None and type(data).__module__.startswith("datasets."):
            config.dispatch_batches = False  # rank 0 cannot send batches of unequal lengths
        try:
            loader = get_loader(*args, **options)
        finally:
            trainer.train_dataset, config.dispatch_batches = data, chosen
        every_rank_reads = hasattr(getattr(loader, "dataset", None), "process_index")  # Accelerate's shard
        current[:] = [(stream, every_rank_reads)]
        return loader

    class TellOfTheEnd(TrainerCallback):
        told = False
        first_step = 0  # of this epoch

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if args.dataloader_num_workers:
                _warn(
                    f"worker processes read the stream (dataloader_num_workers={args.dataloader_num_workers}): where "
                    "its rows end, and with several workers from the start, steps take other rows than one process's, "
                    "so losses are near the single process's and not equal"
                )

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.first_step = state.global_step

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if not current or self.told or not is_main_process:
                return
            (stream, every_rank_reads), share = current[0], _share_of(args)
            full, rest = divmod(stream.rows, share.batch_size * share.accumulation_steps)
            untouched = state.global_step >= state.max_steps and state.global_step - self.first_step <= full
            if not untouched and (
                _ends_otherwise(rest, share, args.gradient_accumulation_steps, every_rank_reads)
                or (not _sums_over_items(trainer) and _weighs_otherwise(rest, share))
            ):
                self.told = True
                _warn(
                    f"the streamed data ended with {rest} rows that do not fill a step of "
                    f"{share.batch_size * share.accumulation_steps}: the ranks take them otherwise than one process "
                    "does, so losses are near the single process's from there on and not equal"
                )

    sharing_loader._shares_stream = True  # type: ignore[attr-defined]
    trainer.get_train_dataloader = sharing_loader
    trainer.add_callback(TellOfTheEnd())


def _ends_otherwise(rest: int, share: Any, accumulation_steps: int, every_rank_reads: bool) -> bool:
    """Return whether ranks fill up the ``rest`` rows, or a step takes other rows because of them than in one process.

    Micro-batches that fill no step are kept for the next epoch's first step, and count there as full ones.
    """
    together = int(share) * _run.world_size
    filled = rest % together if every_rank_reads else rest % together % _run.world_size
    # rows that the next epoch's first step has room for no more
    of_one = math.ceil(rest / share.batch_size) % share.accumulation_steps * share.batch_size
    of_ranks = math.ceil(rest / together) % accumulation_steps * together
    return bool(filled) or of_one != of_ranks


def _weighs_otherwise(rest: int, share: Any) -> bool:
    """Return whether the last ``rest`` rows count otherwise in ranks' means of micro-batches than in one process's.

    The last rows are dealt to the ranks in equal numbers: 8 rows are 5 and 3 in one process's micro-batches of 5, and
    4 on each of two ranks.
    """

    def weights(of_round: int, parts: int) -> list[Fraction]:
        rounds = [min(of_round, rest - start) for start in range(0, rest, of_round)]
        return [
            Fraction(1, max(rows // parts, 1) * parts * len(rounds)) for rows in rounds for _ in range(rows)
        ]

    return weights(share.batch_size, 1) != weights(int(share) * _run.world_size, _run.world_size)


def _sums_over_items(trainer: Any) -> bool:
    """Return whether a Trainer's loss is a sum over the step's items, in whichever micro-batches they are."""
    counted = getattr(trainer.compute_loss, "_sums_items", None)
    kinds = {part.__name__.removeprefix("_").removeprefix("Unsloth") for part in type(trainer).__mro__}
    return bool(counted) if counted is not None else "SFTTrainer" in kinds
