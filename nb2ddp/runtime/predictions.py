"""Let each rank predict one of several evaluation batches at a time; every rank gets the results of all, in order."""

import contextlib
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from nb2ddp.runtime.callbacks import _make_also
from nb2ddp.runtime.digests import _SEED, _digest
from nb2ddp.runtime.figure_rules import _Note
from nb2ddp.runtime.object_collectives import _exchange
from nb2ddp.runtime.random_draws import _NOTHING
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.run_state import _replaced, _run, _warn, _warn_once


class _Predictions:
    """The evaluation batches that the ranks predict together."""

    def __init__(self, trainer: Any) -> None:
        self.trainer: Any = weakref.proxy(trainer)  # which holds this
        self.group: list[Any] = []
        self.results: list[Any] = []
        self.notes: list[_Note] = []
        self.next = 0
        self.whole = ""  # why every rank predicts all batches
        self.loader: Any = None
        self.last: list[bool] = []  # whether a batch of the group is the loader's last one
        self.still: set[Any] = set()  # what counts micro-batches in training, and stays in evaluation

    @contextlib.contextmanager
    def of(self, loader: Any) -> Iterator[Any]:
        """Give a loader that reads a batch for each rank ahead.

        What the notebook makes of the logits of a batch is made on the rank that has computed them: it is smaller.
        """
        self.preprocess = self.trainer.preprocess_logits_for_metrics
        try:
            with _replaced(self.trainer, preprocess_logits_for_metrics=None):
                yield _Ahead(loader, self)
        finally:
            self.group, self.preprocess = [], None
            self.trainer._turns.release()

    def expects(self, inputs: Any) -> bool:
        return self.next < len(self.group) and self.group[self.next] is inputs

    def take(self, compute: Callable[[Any], Any]) -> Any:
        """Return the loss, logits and labels of the next batch. A collective, once in a group."""
        if self.next == 0 and not self.whole:
            self._compute(lambda batch: self._finished(compute(batch)))
        i, self.next = self.next, self.next + 1
        if self.whole:
            return self._finished(compute(self.group[i]))
        self.trainer._turns.figures.apply(self.notes[i])
        result, self.results[i] = self.results[i], None
        return result

    def _finished(self, result: Any) -> Any:
        loss, logits, labels = result
        if logits is not None and self.preprocess is not None:
            logits = self.preprocess(logits, labels)
        return loss, logits, labels

    def _compute(self, compute: Callable[[Any], Any]) -> None:
        figures, start = self.trainer._turns.figures, _random_state()
        base = figures.base = figures.snapshot()
        made: dict[int, Any] = {}

        def record(i: int) -> _Note:
            if self.last:  # Accelerate cuts what is gathered of the last batch
                self.loader.end_of_dataloader = self.last[i]
            note: _Note = figures.record(lambda: made.update({i: compute(self.group[i])}), i, start)
            return note

        counters = figures.counters
        while True:
            figures.counters = {path: step for path, step in counters.items() if path not in self.still}
            own = {i: record(i) for i in range(_run.rank, len(self.group), _run.world_size)}
            of_ranks = _exchange((own, figures.unknown(own, len(self.group))))
            notes = {i: note for noted, _ in of_ranks for i, note in noted.items()}
            moved = {path for note in notes.values() for path in note.changes}
            if figures.counters.keys() <= moved:
                break
            self.still |= figures.counters.keys() - moved
            figures.restore(base)
        why = "the predictions draw random numbers" * any(of.draws != _NOTHING for of in notes.values())
        if not why and any(unknown for _, unknown in of_ranks):
            every = {i: own.get(i) or record(i) for i in range(len(self.group))}
            seen = _exchange(every)
            why = figures.learn([[noted[i] for noted in seen] for i in every])
            why = why and f"{why} depends on the batches before"
        if self.last:
            self.loader.end_of_dataloader = self.last[0]
        figures.counters = counters
        figures.restore(base)
        _set_random_state(start)
        if why:
            self.whole = why
            _warn(f"every rank predicts all batches, which is right and no faster than one GPU: {why}")
            return
        self.notes = [notes[i] for i in range(len(self.group))]
        self.results = [_from_rank(made.get(i), i % _run.world_size) for i in range(len(self.group))]


def _from_rank(value: Any, rank: int) -> Any:
    """Return on every rank what ``rank`` has made: a structure with tensors. A collective."""
    tensors = iter([x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)])

    def hole(x: torch.Tensor) -> types.SimpleNamespace:
        return types.SimpleNamespace(shape=tuple(x.shape), dtype=x.dtype, is_cuda=x.is_cuda)

    form = _exchange(pytree.tree_map_only(torch.Tensor, hole, value) if _run.rank == rank else None)[rank]

    def fill(hole: types.SimpleNamespace) -> torch.Tensor:
        device = torch.device("cuda", _run.gpu) if hole.is_cuda else torch.device("cpu")
        if _run.rank == rank:
            tensor = next(tensors).detach().to(device).contiguous()
        else:
            tensor = torch.empty(hole.shape, dtype=hole.dtype, device=device)
        dist.broadcast(tensor.view(-1).view(torch.uint8), rank)  # gloo takes no numbers of 16 bits
        return tensor

    return pytree.tree_map_only(types.SimpleNamespace, fill, form)


class _Ahead:
    """A loader that reads a batch for each rank before it gives the first of them.

    Accelerate's loaders say whether a batch is the last one: that is put back to each batch as it is given.
    """

    def __init__(self, loader: Any, predictions: _Predictions) -> None:
        self.loader, self.predictions, self.groups, self.are_sent = loader, predictions, 0, False

    def __getattr__(self, name: str) -> Any:
        if "loader" not in self.__dict__:  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        batches, predictions = iter(self.loader), self.predictions
        says = hasattr(self.loader, "end_of_dataloader")
        ends = False
        while not ends:
            group, last = list[Any](), list[bool]()
            while len(group) < _run.world_size and not ends:
                try:
                    group.append(next(batches))
                except StopIteration:
                    ends = True
                    break
                ends = says and self.loader.end_of_dataloader
                last.append(ends)
            group, last, ends = self._agreed(group, last, ends)
            predictions.group, predictions.next = group, 0
            predictions.loader, predictions.last = self.loader, last if says else []
            for batch, is_last in zip(group, last, strict=True):
                if says:
                    self.loader.end_of_dataloader = is_last
                yield batch
        for _ in batches:  # the loader notes its end
            pass

    def _agreed(self, *read: Any) -> Any:
        """Return a group: rank 0's, if groups 1, 2, 4, 8 ... are not the same on all ranks. A collective there."""
        from transformers.trainer_utils import has_length

        self.groups += 1
        if not self.are_sent and not self.groups & (self.groups - 1):
            first, *others = _exchange([has_length(self.loader) and len(self.loader), *map(_digest, read[0])])
            self.are_sent = any(other != first for other in others)
            if self.are_sent:
                _warn_once(f"the ranks evaluate different batches: rank 0's count for all. {_SEED}")
        return _from_rank(read, 0) if self.are_sent else read


class _Evaluating:
    """What a Trainer that evaluates does otherwise on several ranks."""

    _predictions: _Predictions

    def evaluation_loop(self, dataloader: Any, *args: Any, **options: Any) -> Any:
        loop = super().evaluation_loop  # type: ignore[misc]
        if not _run.meets:
            return loop(dataloader, *args, **options)
        with self._predictions.of(dataloader) as ahead:
            return loop(ahead, *args, **options)

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        step = super().prediction_step  # type: ignore[misc]
        if not _run.meets or not self._predictions.expects(inputs):
            return step(model, inputs, *args, **options)
        return self._predictions.take(lambda batch: step(model, batch, *args, **options))


def _divide_evaluation(trainer: Any, whole: bool = False) -> None:
    """Let the ranks predict the batches of a Trainer's evaluations in turns; with ``whole`` each predicts all.

    A script that evaluates brings this part along, and `wrap_trainer` calls it. Without it every rank evaluates whole.
    """
    trainer._predictions = _Predictions(trainer)
    if whole:
        trainer._predictions.whole = "batches write to files or trackers"
    _make_also(trainer, _Evaluating)


_run.at_wrap.append(_divide_evaluation)
