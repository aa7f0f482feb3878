"""Tell where in the script a thread is: file, line and cell."""

import contextlib
import functools
import itertools
import os
import re
import sys
from collections.abc import Iterator
from types import FrameType

_LIBRARIES, _FOLDERS = frozenset(sys.path[1:]), (os.getcwd(), os.path.abspath(sys.path[0]))
# of what is installed, or written by a library: Unsloth's compiler, hubs below ~/.cache
_INSTALLED = re.compile(r"/(?:site-packages|dist-packages|python3\.\d+|unsloth_compiled_cache|\.[^/]+)/")


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and those that called it, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _script_frames(innermost: FrameType | None = None) -> Iterator[FrameType]:
    """Yield the script's own frames, innermost first."""
    return filter(_is_notebooks_own, _frames(innermost or sys._getframe()))


def _is_notebooks_own(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == "__main__"


def _place(frame: FrameType | None = None) -> str:
    """Return where in the script a thread is: ``train_ddp.py, line 35 (cell 4)``."""
    own = next(_script_frames(frame), None)
    if own is None:
        return "the end of the script"
    path, line = own.f_code.co_filename, own.f_lineno
    return f"{os.path.basename(path)}, line {line}{_cell(path, line)}"


@functools.lru_cache(maxsize=256)
def _cell(path: str, line: int) -> str:
    """Return the notebook's cell that a line of the script comes from, by the rulers in the script."""
    with contextlib.suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
        found = [m[1] for text in itertools.islice(file, line) if (m := re.match(r"# -+ cell (\d+)", text))]
        return f" (cell {found[-1]})" if found else ""
    return ""


@functools.cache
def _is_own(module: str | None) -> bool:
    """Return whether a module is the notebook's: the script, or a file below its folder or one on its path."""
    file = os.path.abspath(getattr(sys.modules.get(module or ""), "__file__", None) or os.sep)
    own = tuple(os.path.join(of, "") for of in (*_FOLDERS, os.getcwd()))
    within = (*own, *(os.path.join(os.path.abspath(of), "") for of in {*sys.path} - _LIBRARIES))
    below = min((file[len(of) - 1 :] for of in own if file.startswith(of)), key=len, default=file)
    above = (file[: at + 1] for at, of in enumerate(file) if of == os.sep)
    between = [of for of in above if of.startswith(within) and not any(one.startswith(of) for one in own)]
    # a folder that is there to be installed, a clone of a library say, holds none
    held = [name for of in filter(os.path.isdir, between) for name in os.listdir(of)]
    marks = any(re.fullmatch(r"setup\.py|pyproject\.toml|.+\.dist-info", name) for name in held)
    near = os.path.isfile(file) and file.startswith(within) and not (marks or _INSTALLED.search(below))
    is_ours = (module or "").partition(".")[0] == __name__.partition(".")[0]
    return module == "__main__" or (near and not is_ours)
