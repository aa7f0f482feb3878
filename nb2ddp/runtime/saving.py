"""Save so that no rank reads a half-written file, or a folder before it is written."""

import contextlib
import errno
import functools
import json
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from nb2ddp.runtime.random_numbers import _installed
from nb2ddp.runtime.run_state import _run, is_main_process
from nb2ddp.runtime.same_data import _digest
from nb2ddp.runtime.script_location import _place
from nb2ddp.runtime.store import _store, _wait_for_key

_UNFINISHED = ".unfinished-nb2ddp-"  # what the name of a folder begins with in which something is saved
_BEGAN = time.time()


@functools.cache
def _save_whole_files(*, arrays: bool = True) -> None:
    """Let a file of weights, or one of ``arrays``, appear under its name once it is whole.

    One that dies while it saves leaves no half, and ranks that cache the same rows read none.
    """

    def whole(save: Callable[..., Any], parameter: str) -> Callable[..., Any]:
        @functools.wraps(save)
        def save_whole(value: Any, *args: Any, **options: Any) -> Any:
            path = args[0] if args else options.get(parameter)
            if not isinstance(path, str | os.PathLike) or (os.path.exists(path) and not os.path.isfile(path)):
                return save(value, *args, **options)
            final = os.path.realpath(path)
            with _unfinished_folder(os.path.dirname(final)) as folder:
                part = os.path.join(
                    folder, os.path.basename(final)
                )  # torch.save() writes the name into the file
                try:
                    result = save(
                        value, part, *args[1:], **{k: v for k, v in options.items() if k != parameter}
                    )
                except Exception as error:
                    if getattr(error, "errno", None) is None and shutil.disk_usage(folder).free < 2**20:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), final) from error
                    raise
                os.replace(part, final)
                return result

        return save_whole

    torch.save = whole(torch.save, "f")
    if _installed("safetensors"):
        import safetensors.torch

        safetensors.torch.save_file = whole(safetensors.torch.save_file, "filename")
    if arrays and _installed("numpy"):
        import numpy

        save: Any = numpy.save
        save_whole = whole(lambda array, file, *args, **options: save(file, array, *args, **options), "file")

        @functools.wraps(save)
        def save_array(file: Any, arr: Any, *args: Any, **options: Any) -> None:
            if isinstance(file, str | os.PathLike) and not (name := os.fspath(file)).endswith(".npy"):
                file = f"{name}.npy"  # as numpy.save() itself
            save_whole(arr, file, *args, **options)

        numpy.save = save_array


@contextlib.contextmanager
def _unfinished_folder(above: str) -> Iterator[str]:
    """Make a folder to save in, locked for as long as this process saves there, and remove it in the end.

    Before it is locked, another process may take it for one that was left over: then there is a next one.
    """
    _remove_unfinished(above)
    while True:
        folder = tempfile.mkdtemp(prefix=_UNFINISHED, dir=above)
        with _locked(folder, wait=True):
            if not os.path.isdir(folder):
                continue
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            return


@functools.cache
def _remove_unfinished(above: str) -> None:
    """Remove, once, what runs left that were killed while they saved: folders older than this process, and unlocked.

    Where the file system has no locks, they stay: a run that goes on may save there.
    """
    with contextlib.suppress(OSError):
        for entry in os.scandir(above):
            if entry.name.startswith(_UNFINISHED) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError), _locked(entry.path) as held:
                    if held and entry.stat().st_mtime < _BEGAN:
                        shutil.rmtree(entry.path, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: str, *, wait: bool = False) -> Iterator[bool]:
    """Hold the advisory lock of a folder. False: the file system has none, or (without ``wait``) it is taken."""
    handle, held = -1, False
    with contextlib.suppress(OSError, ImportError):
        import fcntl

        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        held = True
    try:
        yield held
    finally:
        if handle >= 0:
            os.close(handle)


def _drop_half_checkpoints(trainer: Any) -> None:
    """Remove a checkpoint that a Trainer could not write whole, on a full disk say: nobody is to resume from it."""
    save = getattr(trainer, "_save_checkpoint", None)
    if save is None or getattr(save, "_drops", False):
        return

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

    save_or_drop._drops = True  # type: ignore[attr-defined]
    trainer._save_checkpoint = save_or_drop


def _wait_for_saves(trainer: Any) -> None:
    """Let the other ranks find in a folder what rank 0 saves there: the best checkpoint, or a model to load again.

    Rank 0 waits for none of them: a notebook may call save_model() on the main process alone.
    """
    _drop_half_checkpoints(trainer)
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
