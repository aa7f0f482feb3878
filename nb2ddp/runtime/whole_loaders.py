"""Give the notebook's own code whole batches where a Trainer's loader would give it a rank's share."""

import copy
import functools
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import torch

from nb2ddp.runtime.batch_share import _share_of
from nb2ddp.runtime.collating import _WholeCollator
from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.script_location import _is_notebooks_own


def _give_whole_loaders(trainer: Any) -> None:
    """Let loaders that the notebook's own code gets from a Trainer give its batches, whole, on every rank that asks.

    Accelerate gives each rank a share of the batches: that is for the Trainer's own loops, and for one that the
    notebook writes in its place.
    """
    for name in ("get_train_dataloader", "get_eval_dataloader", "get_test_dataloader"):
        make = getattr(trainer, name, None)
        if make is not None and not hasattr(make, "_gives_whole"):
            setattr(trainer, name, _giving_whole(trainer, name, make))
    _give_callbacks_whole_loaders(trainer)


def _giving_whole(trainer: Any, name: str, make: Any) -> Any:
    @functools.wraps(make)
    def made(*args: Any, **options: Any) -> Any:
        frame: FrameType | None = sys._getframe(1)
        if not _is_notebooks_own(frame) or _takes_steps(frame):
            return make(*args, **options)
        if _is_in_method_of(trainer, frame):
            loader = make(*args, **options)
            evaluates = name != "get_train_dataloader" and getattr(loader, "batch_sampler", None) is not None
            return _AsAsked(loader, None) if evaluates else loader
        of_rank = getattr(trainer, "_train_batch_size", None)
        trainer._train_batch_size = _share_of(trainer.args).batch_size
        kept = trainer.__dict__.pop(
            "_eval_dataloaders", None
        )  # with persistent workers; its own loops' shares
        try:  # what the Trainer's own loops count in `make` stays as it is
            loader = getattr(type(trainer), name)(trainer, *args, **options)
        finally:
            trainer._train_batch_size = of_rank
            trainer.__dict__.pop("_eval_dataloaders", None)
            if kept is not None:
                trainer._eval_dataloaders = kept
        if _run.world_size == 1:  # the other ranks have left
            return loader
        shard: Any = getattr(loader, "batch_sampler", None)
        if type(shard).__name__ != "BatchSamplerShard" or shard.split_batches:  # of a stream
            return make(*args, **options)
        for owner in (loader, getattr(loader, "base_dataloader", loader)):
            object.__setattr__(owner, "batch_sampler", shard.batch_sampler)
        loader.rng_types = None  # the ranks' random numbers agree, and a rank may come alone
        return loader

    made._gives_whole = True  # type: ignore[attr-defined]
    return made


# what a training or evaluation of the notebook's own calls, which counts on shares
_IN_LOOPS = frozenset(
    "training_step evaluation_loop prediction_loop prediction_step gather_for_metrics gather_function gather_object "
    "_nested_gather all_gather all_gather_into_tensor all_gather_object all_reduce pad_across_processes".split()
)
# a tensor has methods of these names; with one of the others beside it they are of a training, or of the ranks
_AMBIGUOUS = {
    "backward": frozenset({"accelerator", "step"}),
    "gather": frozenset({"accelerator", "dist", "distributed"}),
    "reduce": frozenset({"accelerator", "dist", "distributed"}),
}


def _counts_on_shares(names: set[str]) -> bool:
    """Return whether code with these names computes on a rank's share and joins what the ranks have."""
    return bool(_IN_LOOPS & names) or any(
        name in names and beside & names for name, beside in _AMBIGUOUS.items()
    )


def _variables(code: CodeType) -> set[str]:
    """Return a function's own names, which may hold an accelerator; a `step` among them is a number."""
    return {*code.co_varnames, *code.co_freevars} - {"step"}


def _takes_steps(frame: FrameType | None) -> bool:
    """Return whether a loader is for a loop of the notebook's in place of the Trainer's, which takes steps itself."""
    while _is_notebooks_own(frame):
        assert frame is not None
        code = frame.f_code
        comprehensions = [
            of for of in code.co_consts if isinstance(of, CodeType) and of.co_name.startswith("<")
        ]
        if any(_counts_on_shares({*of.co_names, *_variables(of)}) for of in (code, *comprehensions)):
            return True
        frame = frame.f_back
    return False


def _is_in_method_of(trainer: Any, frame: FrameType | None) -> bool:
    """Return whether a method of the notebook's Trainer asks: it may train on the loader, or hand it on."""
    while _is_notebooks_own(frame):
        assert frame is not None
        if frame.f_code.co_varnames[:1] == ("self",) and frame.f_locals.get("self") is trainer:
            return True
        frame = frame.f_back
    return False


def _give_callbacks_whole_loaders(trainer: Any) -> None:
    """Let the loaders that a Trainer hands its callbacks give the notebook's own callbacks whole batches."""
    handler = trainer.callback_handler
    if isinstance(handler, _HandsWholeLoaders):
        return

    def given(name: str, batch_size: Any) -> property:
        def get(handler: Any) -> Any:
            loader = handler.__dict__.get(name)
            shard = getattr(loader, "batch_sampler", None)
            return loader if shard is None else _AsAsked(loader, batch_size())

        def put(handler: Any, loader: Any) -> None:
            handler.__dict__[name] = loader

        return property(get, put)

    loaders = {
        "train_dataloader": given("train_dataloader", lambda: _share_of(trainer.args).batch_size),
        "eval_dataloader": given("eval_dataloader", lambda: None),
    }
    kind = type(handler)
    handler.__class__ = type(kind.__name__, (_HandsWholeLoaders, kind), loaders)


class _HandsWholeLoaders:
    """Marks a callback handler whose loaders have been replaced."""


class _AsAsked:
    """A rank's loader that gives whole batches where the notebook's code iterates over it, else this rank's share.

    ``batch_size`` is the notebook's; None where the loader's own batches have it. A library's callback that shows
    progress counts the rank's batches, and so does code that divides them by the rank's accumulation steps. A loop of
    the notebook's that gathers what ranks compute takes its share.
    """

    def __init__(self, loader: Any, batch_size: int | None) -> None:
        self.loader, self.of_notebook = loader, batch_size

    def __getattr__(self, name: str) -> Any:
        if "loader" not in self.__dict__:  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __len__(self) -> int:
        frame = sys._getframe(1)
        counts_steps = "gradient_accumulation_steps" in frame.f_code.co_names
        whole = self._whole() if _is_asked_by_notebook(frame) and not counts_steps else None
        return len(self.loader) if whole is None else len(whole)

    def __iter__(self) -> Iterator[Any]:
        whole = self._whole() if _is_asked_by_notebook(sys._getframe(1)) else None
        return iter(self.loader) if whole is None else self._batches(whole)

    def _whole(self) -> Any:
        """Return a loader of the whole batches, in the order of the rank's; None for one that is made otherwise."""
        shard: Any = self.loader.batch_sampler
        whole: Any = getattr(shard, "batches", None)  # of ours, else of Accelerate's
        if whole is None and type(shard).__name__ == "BatchSamplerShard" and not shard.split_batches:
            whole = shard.batch_sampler
        if whole is None or (self.of_notebook and type(whole) is not torch.utils.data.BatchSampler):
            return None
        batches = copy.copy(whole)
        if self.of_notebook:
            batches.batch_size = self.of_notebook
        base = copy.copy(getattr(self.loader, "base_dataloader", self.loader))
        object.__setattr__(base, "batch_sampler", batches)
        if isinstance(base.collate_fn, _WholeCollator):
            base.collate_fn = base.collate_fn.collate
        base._iterator = None  # do not reuse persistent workers
        return base

    def _batches(self, whole: Any) -> Iterator[Any]:
        """Yield the whole batches on this rank's device, and count an epoch of the loader as it does itself."""
        from accelerate.utils import send_to_device

        loader, device = self.loader, getattr(self.loader, "device", None)
        loader.set_epoch(loader.iteration)
        for batch in whole:
            yield batch if device is None else send_to_device(batch, device)
        loader.iteration += 1


def _is_asked_by_notebook(frame: FrameType | None) -> bool:
    """Return whether code of the notebook asks, through a progress bar perhaps, which gathers nothing from ranks."""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name == "__main__" or name.startswith("transformers."):
            return name == "__main__" and not _takes_steps(frame)
        frame = frame.f_back
    return False
