"""Save files that appear under their names once they are whole: ranks of a loop may read what another one caches."""

import contextlib
import errno
import functools
import importlib
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

# functions, where the path stands, how it is named, and what is added to it
_SAVING = (
    ("torch", "save", 1, "f", ""),
    ("safetensors.torch", "save_file", 1, "filename", ""),
    ("numpy", "save", 0, "file", ".npy"),
)


@functools.cache
def _save_whole_files() -> None:
    """Let a file appear under its name once it is whole: a rank that dies leaves no half, and none reads one."""
    for package, name, place, parameter, end in _SAVING:
        if importlib.util.find_spec(package.partition(".")[0]):
            module = importlib.import_module(package)
            setattr(module, name, _whole(getattr(module, name), place, parameter, end))


def _whole(save: Callable[..., Any], place: int, parameter: str, end: str) -> Callable[..., Any]:
    """Return a function that saves to a path, at ``place`` or as ``parameter``, in one move; ``end``: of all names."""

    @functools.wraps(save)
    def save_whole(*args: Any, **options: Any) -> Any:
        given: dict[Any, Any] = {**dict(enumerate(args)), **options}
        at = place if place in given else parameter
        path: Any = given.get(at)
        is_path = isinstance(path, str | os.PathLike)
        final = os.path.realpath(os.fsdecode(path).removesuffix(end) + end) if is_path else ""
        if not os.path.isdir(os.path.dirname(final)) or (os.path.exists(path) and not os.path.isfile(path)):
            return save(*args, **options)  # raises its own error
        with _unfinished_folder(os.path.dirname(final)) as folder:
            given[at] = part = os.path.join(folder, os.path.basename(final))  # torch.save() keeps the name
            try:
                result = save(*list(map(given.pop, range(len(args)))), **given)
            except Exception as error:
                if getattr(error, "errno", None) is None and shutil.disk_usage(folder).free < 2**20:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), final) from error
                raise
            os.replace(part, final)
            return result

    return save_whole


@contextlib.contextmanager
def _unfinished_folder(above: str) -> Iterator[str]:
    """Make a folder to save in, and remove it in the end, with those of processes that were killed as they saved."""
    begin = f".unfinished-nb2ddp-{platform.node()}-"
    for name in os.listdir(above) if sys.platform == "linux" else ():
        process = name.removeprefix(begin).partition("-")[0]
        if name.startswith(begin) and process.isdecimal() and not os.path.exists(f"/proc/{process}"):
            shutil.rmtree(os.path.join(above, name), ignore_errors=True)
    own = f"{begin}{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=own, dir=above, ignore_cleanup_errors=True) as folder:
        yield folder
