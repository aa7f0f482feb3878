"""Save so that no rank reads a half-written file, or a folder before it is written."""

import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import torch

from nb2ddp.runtime.places import _place
from nb2ddp.runtime.random_numbers import _installed
from nb2ddp.runtime.run_state import _run, is_main_process
from nb2ddp.runtime.same_data import _digest
from nb2ddp.runtime.store import _store, _wait_for_key


def _save_whole_files() -> None:
    """Let a file of weights appear under its name once it is whole: one that dies while it saves leaves no half."""

    def whole(save: Callable[..., Any], parameter: str) -> Callable[..., Any]:
        @functools.wraps(save)
        def save_whole(value: Any, *args: Any, **options: Any) -> Any:
            path = args[0] if args else options.get(parameter)
            if not isinstance(path, str | os.PathLike) or (os.path.exists(path) and not os.path.isfile(path)):
                return save(value, *args, **options)
            final = os.path.realpath(path)
            folder = tempfile.mkdtemp(prefix=".unfinished-", dir=os.path.dirname(final))
            try:
                part = os.path.join(
                    folder, os.path.basename(final)
                )  # torch.save() writes the name into the file
                result = save(value, part, *args[1:], **{k: v for k, v in options.items() if k != parameter})
                os.replace(part, final)
                return result
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        return save_whole

    torch.save = whole(torch.save, "f")
    if _installed("safetensors"):
        import safetensors.torch

        safetensors.torch.save_file = whole(safetensors.torch.save_file, "filename")


def _wait_for_saves(trainer: Any) -> None:
    """Let the other ranks find in a folder what rank 0 saves there: the best checkpoint, or a model to load again.

    Rank 0 waits for none of them: a notebook may call save_model() on the main process alone.
    """
    save_model = trainer.save_model
    if getattr(save_model, "_waits", False) or not _run.one_disk:
        return
    saves: dict[str, int] = {}

    def save_and_wait(output_dir: Any = None, *args: Any, **options: Any) -> None:
        save_model(output_dir, *args, **options)
        if not _run.meets:
            return
        folder = os.path.abspath(output_dir or trainer.args.output_dir)
        saves[folder] = saves.get(folder, 0) + 1
        key = f"saved {_digest(folder)} {saves[folder]}"
        if is_main_process:
            _store().set(key, "")
        else:
            _wait_for_key(key, 0, _place())

    save_and_wait._waits = True  # type: ignore[attr-defined]
    trainer.save_model = save_and_wait
