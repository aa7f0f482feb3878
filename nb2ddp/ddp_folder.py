"""The contract of a converted folder: the names of its files, how they are written and read back.

Writing is all or nothing, and never replaces a file that the user edited.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nb2ddp.errors import FolderError, OutputError

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
    if not (folder / SCRIPT).is_file():
        raise FolderError(f"{folder} holds no {SCRIPT}; `nb2ddp convert` makes one.")
    report: Any = None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        report = json.loads((folder / REPORT).read_text(encoding="utf-8"))
    return ConvertedFolder(
        folder,
        _text(folder / SCRIPT),
        _text(folder / SUPPORT) if (folder / SUPPORT).is_file() else None,
        _text(folder / SETUP) if (folder / SETUP).is_file() else None,
        report if isinstance(report, dict) else {},
    )


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise FolderError(f"{path} cannot be read: {error}.") from None


def _written(folder: Path) -> dict[str, str]:
    """The files that nb2ddp wrote into ``folder``, with their digests, as its report remembers them."""
    known: Any = None
    with contextlib.suppress(OSError, ValueError, AttributeError):
        known = json.loads((folder / REPORT).read_text(encoding="utf-8")).get("files")
    return known if isinstance(known, dict) else {}


def edited_since(folder: Path) -> list[str]:
    """Files in ``folder`` that are not as nb2ddp wrote them, by the digests in its report."""
    known = _written(folder)
    return [
        name
        for name, digest in known.items()
        if (folder / name).is_file() and _digest_of(folder / name) != digest
    ]


def write(folder: Path, files: Mapping[str, str], report: Mapping[str, Any], *, force: bool) -> None:
    """Write ``files`` and the report, which remembers their digests.

    Every file is written under a temporary name first; none is replaced before all are there. What an
    earlier conversion wrote and this one does not is removed.

    Raises:
        OutputError: a file was edited since, or is not ours, or the folder cannot be written.
    """
    everything = {name: text.encode() for name, text in files.items()}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in everything.items()}
    everything[REPORT] = (
        json.dumps({**report, "files": digests}, indent=2, ensure_ascii=False) + "\n"
    ).encode()
    known = _written(folder)
    if not force:
        edited = edited_since(folder)
        ours = {*known, REPORT} if known else set()
        foreign = [name for name in everything if (folder / name).exists() and name not in ours]
        if edited or foreign:
            names = ", ".join(edited or foreign)
            reason = "changed since nb2ddp wrote" if edited else "not written by nb2ddp"
            raise OutputError(
                f"{folder}: {names} {reason}; use --force to overwrite, or -o for another folder."
            )
    staged: list[tuple[Path, Path]] = []
    try:
        for name, data in everything.items():
            target = folder / name
            if target.is_dir():
                raise IsADirectoryError(None, f"{name} is a folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            staged.append((Path(temporary), target))
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(temporary, 0o755 if data.startswith(b"#!") else 0o644)
        for temporary_path, target in staged:
            os.replace(temporary_path, target)
        for name in known.keys() - everything.keys():
            left = folder / name
            if left.is_file() and _digest_of(left) == known[name]:
                left.unlink()
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror or error}.") from None
    finally:
        for temporary_path, _ in staged:
            temporary_path.unlink(missing_ok=True)


def _digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
