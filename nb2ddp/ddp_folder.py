"""The contract of a converted folder: the names of its files, how they are written and read back.

The files are staged in a hidden folder, the report as the last, and renamed; whoever reads or writes the folder next
finishes what a killed process has left. Nothing is replaced or removed that nb2ddp has not written, or that was edited
since; with ``force`` it is kept as `.bak`, and the next one as `.bak2`.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import itertools
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from nb2ddp.errors import FolderError, OutputError
from nb2ddp.folder_lock import locked
from nb2ddp.plain_text import json_text
from nb2ddp.regular_files import bytes_of, json_object, opened

# What a conversion writes.
SCRIPT = "train_ddp.py"
"""The training script."""
SUPPORT = "ddp_support.py"
"""The runtime module that the script imports; absent where the script carries it."""
SETUP = "setup_env.py"
"""The run-once install step; absent where the notebook installs nothing."""
REPORT = "report.json"
"""What was changed, and the digests of the files above."""
KAGGLE = "kaggle"
"""Folder: the Kaggle bundle."""

# What later commands write into the folder.
LOGS = "logs"
"""Folder: the output of the ranks of the last run."""
PUSHED = "pushed"
"""Folder: the bundle that was sent to Kaggle last, with the address that the kernel got."""
DRY_RUN = "dry_run"
"""Folder: the bundle that `push --dry-run` shows."""


def kept_name(name: str, files: Mapping[str, object]) -> str:
    """Return the name under which a notebook lies beside the ``files`` made of it, none of which it replaces."""
    return f"notebook_{name}" if name in files else name


_SHARDS = re.compile(r"""^[^#\n]*\binit(?:_ranks)?\([^)\n]*strategy="fsdp\"""", re.MULTILINE)


def shards(script: str) -> bool:
    """Return whether a script lets Unsloth shard the model (`--strategy fsdp`)."""
    return _SHARDS.search(script) is not None


_SPREADS = "in one process, with the model spread over all GPUs"


def spreads(script: str) -> bool:
    """Return whether a script is one process that spreads its model over the GPUs (`--strategy balanced`)."""
    head = re.match(r'"""(.*?)"""', script, re.DOTALL)
    return head is not None and _SPREADS in head[1]


@dataclass(frozen=True)
class ConvertedFolder:
    """A converted folder as it is on disk, with the user's edits.

    support, setup: None where the folder has no such file. report: empty where none can be read.
    """

    path: Path
    script: str
    support: str | None
    setup: str | None
    report: Mapping[str, Any]

    @property
    def source(self) -> Path | None:
        """The notebook's path as the report has it; None where the report does not tell."""
        name = self.report.get("notebook")
        return Path(name) if isinstance(name, str) and name and "\0" not in name else None

    @property
    def notebook(self) -> Path | None:
        """The notebook on disk: at its old place, in the folder or beside it; None where it is gone."""
        if self.source is None:
            return None
        places = (self.source, self.path / self.source, self.path.parent / self.source.name)
        return next((place for place in places if place.is_file()), None)


def read(folder: Path) -> ConvertedFolder:
    """Read a converted folder back.

    Raises:
        FolderError: the folder holds no script, or one of its files cannot be read.
    """
    with contextlib.suppress(OutputError, OSError):
        settle(folder)
    if not (folder / SCRIPT).is_file():
        raise FolderError(f"{folder} holds no {SCRIPT}; `nb2ddp convert` makes one.")
    return ConvertedFolder(
        folder,
        text_in(folder / SCRIPT),
        text_in(folder / SUPPORT) if (folder / SUPPORT).is_file() else None,
        text_in(folder / SETUP) if (folder / SETUP).is_file() else None,
        json_object(folder / REPORT),
    )


def text_in(path: Path) -> str:
    """Return the text of a file of the folder. Raises FolderError."""
    try:
        return bytes_of(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise FolderError(f"{path} cannot be read: {error}.") from None


# ---- what nb2ddp has written ----------------------------------------------------------------------------

_STAGING = ".nb2ddp_staged"
_ABSENT = ""  # the digest of a file that is not there


def edited_since(folder: Path) -> list[str]:
    """Return the names of files in ``folder`` that differ from what nb2ddp wrote.

    A conversion that was killed may have left a file as it was before or as it was to become.
    """
    old, new = _digests(folder / REPORT), _digests(folder / _STAGING / REPORT)
    return [n for n in {**old, **new} if _digest_of(folder / n) not in (_ABSENT, old.get(n), new.get(n))]


def _digests(report: Path) -> dict[str, str]:
    """Return the digests of the other files by name, without names that lead out of the folder."""
    entries = json_object(report).get("files")
    if not isinstance(entries, dict):
        return {}
    return {n: d for n, d in entries.items() if isinstance(d, str) and _is_inside(n) and n != REPORT}


def _is_inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and "\0" not in name and parts[0] != "/" and ".." not in parts


def _digest_of(path: Path) -> str:
    try:
        with open(path, "rb", opener=opened) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return _ABSENT
    except OSError:
        return "unreadable"


# ---- writing --------------------------------------------------------------------------------------------


def contents_of(files: Mapping[str, str], report: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files of a folder by name, with the report, which remembers the digests of the others."""
    contents = {name: text.encode() for name, text in files.items()}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    return {**contents, REPORT: f"{json_text({**report, 'files': digests})}\n".encode()}


def write(folder: Path, files: Mapping[str, str], report: Mapping[str, Any], *, force: bool) -> None:
    """Write ``files`` and the report, which remembers their digests; remove what is no longer made.

    Two processes that write one folder do so one after the other. While a run uses the folder (`in_use`), it stays as
    it is.

    Raises:
        OutputError: a file was edited since, or is not ours, or the folder is in use or cannot be written.
    """
    contents = contents_of(files, report)
    if _holds(folder, contents):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            _finish(folder)
            _update(folder, contents, force=force)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror or error}.") from None


def settle(folder: Path) -> None:
    """Finish, or clean up after, a conversion into ``folder`` that was killed.

    Raises:
        OutputError: another process is writing the folder.
    """
    if (folder / _STAGING).is_dir():
        with locked(folder):
            _finish(folder)


@contextlib.contextmanager
def in_use(folder: Path, files: Mapping[str, str] | None = None) -> Iterator[None]:
    """Keep conversions from replacing the files of a folder while runs use them; several runs may.

    Raises:
        OutputError: another process is writing the folder, or has written other ``files`` than those.
    """
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            held.enter_context(locked(folder, shared=True))
        expected = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in (files or {}).items()}
        if any(_digest_of(folder / name) != digest for name, digest in expected.items()):
            raise OutputError(f"{folder}: another nb2ddp has written there meanwhile; try again.")
        yield


def _holds(folder: Path, contents: Mapping[str, bytes]) -> bool:
    """Return whether a folder holds exactly these files of nb2ddp's, with nothing left to finish."""
    known = _digests(folder / REPORT)
    return (
        {*known, REPORT} == contents.keys()
        and not os.path.lexists(folder / _STAGING)
        and all(
            _digest_of(folder / name) == hashlib.sha256(data).hexdigest() for name, data in contents.items()
        )
    )


# ---- replacing the files of a folder ------------------------------------------------------------------


def refuse_edits(folder: Path, names: Collection[str], advice: str) -> None:
    """Refuse to replace files that were edited, or are somebody else's.

    Raises:
        OutputError: some are, with ``advice``.
    """
    known, edited = _digests(folder / REPORT), edited_since(folder)
    ours = {*known, REPORT} if known else set()
    foreign = [name for name in names if os.path.lexists(folder / name) and name not in ours]
    if os.path.lexists(folder) and not folder.is_dir():
        foreign = ["what is there"]
    if edited or foreign:
        verb = "was" if len(edited or foreign) == 1 else "were"
        reason = "changed since nb2ddp wrote it" if edited else "not written by nb2ddp"
        raise OutputError(f"{folder}: {', '.join(edited or foreign)} {verb} {reason}; {advice}.")


def _update(folder: Path, contents: Mapping[str, bytes], *, force: bool) -> None:
    """Check, stage, replace. Called with the lock."""
    if not force:
        advice = "--force overwrites it (and keeps it as .bak), -o names another folder"
        refuse_edits(folder, contents, advice)
    for name in contents:
        if (folder / name).is_dir():
            raise OutputError(f"{folder} cannot be written: {name} is a folder.")
    staging, known = folder / _STAGING, _digests(folder / REPORT)
    staging.mkdir(exist_ok=True)
    if staging.is_symlink():
        raise OutputError(f"{folder} cannot be written: {_STAGING} is a link; remove it.")
    try:
        for name, data in contents.items():
            parent = (folder / name).parent
            parent.mkdir(parents=True, exist_ok=True)
            if not _can_replace(folder, name):
                raise OutputError(
                    f"{folder} cannot be written: {parent} is read-only, or a link to elsewhere."
                )
            path = staging / (name if name != REPORT else f"{REPORT}.new")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            os.chmod(path, 0o755 if data.startswith(b"#!") else 0o644)
        for name in contents:
            if _digest_of(folder / name) not in (_ABSENT, known.get(name)) and (name != REPORT or not known):
                shutil.copy2(folder / name, _backup(folder / name), follow_symlinks=False)
        os.replace(staging / f"{REPORT}.new", staging / REPORT)
    except BaseException:
        _remove_staging(folder)
        raise
    _finish(folder)


def _backup(file: Path) -> Path:
    """Return the first free of NAME.bak, NAME.bak2 and so on: an earlier one is an edit too."""
    numbers = itertools.chain([""], itertools.count(2))
    places = (file.with_name(f"{file.name}.bak{number}") for number in numbers)
    return next(place for place in places if not os.path.lexists(place))


def _can_replace(folder: Path, name: str) -> bool:
    """Whether a file can be renamed to ``name``, and lies in ``folder`` itself: a link may lead elsewhere."""
    parent = (folder / name).parent
    while not parent.exists():
        parent = parent.parent
    real = folder.resolve()
    return (
        os.access(parent, os.W_OK | os.X_OK)
        and parent.stat().st_dev == real.stat().st_dev
        and parent.resolve().is_relative_to(real)
    )


def _finish(folder: Path) -> None:
    """Do what a staged report says and is not done yet, the report last. Called with the lock.

    A file that was edited in between, and of which there is no copy, stays.
    """
    staging, old = folder / _STAGING, _digests(folder / REPORT)
    new = _digests(staging / REPORT)
    for name in [*new, *(old.keys() - new), REPORT] if new else ():
        target = folder / name
        copies = (_digest_of(path) for path in target.parent.glob(f"{glob.escape(target.name)}.bak*"))
        if name != REPORT and _digest_of(target) not in (_ABSENT, old.get(name), *copies):
            continue
        if not _can_replace(folder, name):
            continue
        if name != REPORT and name not in new:
            target.unlink(missing_ok=True)
        elif name == REPORT or _digest_of(staging / name) == new[name]:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(staging / name, target)
    _remove_staging(folder)


def _remove_staging(folder: Path) -> None:
    if not (folder / _STAGING).is_symlink():
        shutil.rmtree(folder / _STAGING, ignore_errors=True)
