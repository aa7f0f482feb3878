"""Save so that no rank reads a folder before it is written, and nobody a checkpoint that is not whole."""

import errno
import json
import os
import pathlib
import shutil
from typing import Any

from nb2ddp.runtime.digests import _digest
from nb2ddp.runtime.run_state import _run, is_main_process
from nb2ddp.runtime.script_location import _place
from nb2ddp.runtime.store import _store, _wait_for_key

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


class _WholeCheckpoints:
    """A Trainer that removes a checkpoint which a full disk, say, has left in parts: nobody is to resume from it."""

    args: Any

    def _save_checkpoint(self, *args: Any, **options: Any) -> Any:
        root = pathlib.Path(self.args.output_dir)
        before = {*root.glob("checkpoint-*")} if _run.writes else set()
        try:
            return super()._save_checkpoint(*args, **options)  # type: ignore[misc]
        except BaseException as error:
            is_full = root.exists() and shutil.disk_usage(root).free < 2**20
            for folder in {*root.glob("checkpoint-*")} - before if _run.writes else ():
                try:
                    json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))  # written last
                except (OSError, ValueError):
                    shutil.rmtree(folder, ignore_errors=True)
            if is_full and isinstance(error, RuntimeError):  # PyTorch's does not name it
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(root)) from error
            raise
