"""Save so that no rank reads a half-written file, or a folder before it is written."""

import contextlib
import errno
import functools
import json
import os
import pathlib
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch

from nb2ddp.runtime.digests import _digest
from nb2ddp.runtime.random_numbers import _installed
from nb2ddp.runtime.run_state import _run, is_main_process
from nb2ddp.runtime.script_location import _place
from nb2ddp.runtime.store import _store, _wait_for_key


@functools.cache
def _save_whole_files() -> None:
    """Let a file of weights appear under its name once it is whole: one that dies while it saves leaves no half."""
    torch.save = _whole(torch.save, "f")
    if _installed("safetensors"):
        import safetensors.torch

        safetensors.torch.save_file = _whole(safetensors.torch.save_file, "filename")


def _whole(save: Callable[..., Any], parameter: str) -> Callable[..., Any]:
    """Return a function that saves to a path, given first after the value or as ``parameter``, in one move."""

    @functools.wraps(save)
    def save_whole(value: Any, *args: Any, **options: Any) -> Any:
        path = args[0] if args else options.get(parameter)
        if not isinstance(path, str | os.PathLike) or (os.path.exists(path) and not os.path.isfile(path)):
            return save(value, *args, **options)
        final = os.path.realpath(path)
        if not os.path.isdir(os.path.dirname(final)):
            return save(value, *args, **options)  # raises its own error
        with _unfinished_folder(os.path.dirname(final)) as folder:
            part = os.path.join(folder, os.path.basename(final))  # torch.save() writes the name into the file
            try:
                result = save(value, part, *args[1:], **{k: v for k, v in options.items() if k != parameter})
            except Exception as error:
                if getattr(error, "errno", None) is None and shutil.disk_usage(folder).free < 2**20:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), final) from error
                raise
            os.replace(part, final)
            return result

    return save_whole


@contextlib.contextmanager
def _unfinished_folder(above: str) -> Iterator[str]:
    """Make a folder to save in, named after this process, and remove it in the end.

    With it goes what processes of this machine left there that were killed while they saved.
    """
    begin = f".unfinished-nb2ddp-{platform.node()}-"
    for name in os.listdir(above) if sys.platform == "linux" else ():
        process = name.removeprefix(begin).partition("-")[0]
        if name.startswith(begin) and process.isdecimal() and not os.path.exists(f"/proc/{process}"):
            shutil.rmtree(os.path.join(above, name), ignore_errors=True)
    with tempfile.TemporaryDirectory(
        prefix=f"{begin}{os.getpid()}-", dir=above, ignore_cleanup_errors=True
    ) as folder:
        yield folder


_saves: dict[str, int] = {}  # how often each folder was saved: ranks wait for each time


def _wait_for_save(what: str) -> None:
    """Let the other ranks find what rank 0 saves. Rank 0 waits for none: it may save alone."""
    if not _run.meets or not _run.one_disk:
        return
    _saves[what] = _saves.get(what, 0) + 1
    key = f"saved {_digest([what])} {_saves[what]}"
    if is_main_process:
        _store().set(key, "")
    else:
        _wait_for_key(key, 0, _place())


def _drop_half_checkpoints(trainer: Any) -> None:
    """Remove a checkpoint that a Trainer could not write whole, on a full disk say: nobody is to resume from it."""
    save = trainer._save_checkpoint

    @functools.wraps(save)
    def save_or_drop(*args: Any, **options: Any) -> Any:
        root = pathlib.Path(trainer.args.output_dir)
        before = {*root.glob("checkpoint-*")} if _run.writes else set()
        try:
            return save(*args, **options)
        except BaseException:
            for folder in {*root.glob("checkpoint-*")} - before if _run.writes else ():
                try:
                    json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))  # written last
                except (OSError, ValueError):
                    shutil.rmtree(folder, ignore_errors=True)
            raise

    trainer._save_checkpoint = save_or_drop
