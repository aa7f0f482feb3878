"""Train and save a model that Unsloth has sharded over the ranks (FSDP)."""

import contextlib
import os
import re
from typing import Any

from nb2ddp.runtime.object_collectives import from_main_process
from nb2ddp.runtime.ranks_trainer import _check_knows_ranks
from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.same_data import _check_same_data
from nb2ddp.runtime.whole_files import _unfinished_folder


def use_shards(trainer: Any) -> Any:
    """Make a Trainer train the model that Unsloth has sharded over the ranks, and return that model.

    Called right before ``trainer.train()``. Every rank waits for the others, and compares its training data with
    theirs. The shards of a gradient are summed as they are made.

    Raises:
        RuntimeError: Unsloth has left the model whole; or the Trainer does not know of all ranks; or the ranks have
            different training data.
    """
    _check_knows_ranks(trainer)
    if _run.world_size == 1:
        return trainer.model
    _check_same_data(getattr(trainer, "train_dataset", None))
    from torch.distributed.fsdp import FSDPModule

    if not isinstance(trainer.model, FSDPModule):
        raise RuntimeError(
            f"Unsloth has not sharded the model of this {type(trainer).__name__}: import unsloth before trl and "
            "transformers, or convert the notebook with --strategy ddp"
        )
    return trainer.model


def save_shards(trainer: Any, folder: str) -> None:
    """Save the model of a Trainer as ``model.save_pretrained(folder)`` does: the adapter, or a whole model.

    Every rank gives its shards and waits until rank 0 has written them. The files come from the Trainer's own
    save, through a folder beside the wanted one; what that adds (tokenizer, training arguments) is left out.
    """
    if _run.world_size == 1:
        trainer.model.save_pretrained(folder)
        return
    folder = os.path.abspath(folder)
    with contextlib.ExitStack() as until_moved:
        part = from_main_process(lambda: until_moved.enter_context(_beside(folder)))
        trainer.save_model(part)
        from_main_process(lambda: _move_model(part, folder))


# What a model and PEFT's adapter save.
_MODEL_FILE = re.compile(
    r"adapter_.*|README\.md|config\.json|generation_config\.json|(pytorch_)?model.*\.(safetensors|bin|json)"
)


def _move_model(part: str, folder: str) -> None:
    """Move the files of a model out of a folder."""
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(part):
        if _MODEL_FILE.fullmatch(name):
            os.replace(os.path.join(part, name), os.path.join(folder, name))


def _beside(folder: str) -> contextlib.AbstractContextManager[str]:
    """Return a block's empty folder on the disk that ``folder`` is on."""
    above = os.path.dirname(folder)
    os.makedirs(above, exist_ok=True)
    return _unfinished_folder(above)
