"""Save files that appear under their names once they are whole: ranks of a loop may read what another one caches."""

import contextlib
import errno
import functools
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


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
    own = f"{begin}{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=own, dir=above, ignore_cleanup_errors=True) as folder:
        yield folder
