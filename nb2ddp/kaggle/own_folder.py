"""Folders that hold a copy of what is sent: replaced only where every file in them is ours."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from nb2ddp.errors import OutputError
from nb2ddp.kaggle.untrusted import dict_of, shown
from nb2ddp.regular_files import bytes_of

DIGESTS = ".nb2ddp.json"
"""The file in such a folder that holds the digests of the others."""


def check_own(folder: Path) -> None:
    """Raise OutputError when a folder holds what `replace` did not write, or has changed since."""
    try:
        foreign = _foreign(folder)
    except OSError as error:
        raise OutputError(f"{folder} cannot be read: {error.strerror or error}.") from None
    if foreign:
        names = ", ".join(shown(name, 80) for name in foreign[:5])
        names += " and more" if len(foreign) > 5 else ""
        raise OutputError(
            f"{folder} is where a copy of what is sent would go, and it holds what nb2ddp has not written "
            f"like this: {names}. Nothing was sent or changed; move that away and try again."
        )


def replace(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder with these files, in place of an earlier one of ours. An empty one counts as ours.

    Raises OutputError, also for a folder that is not ours.
    """
    check_own(folder)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    new = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}")
    try:
        new.mkdir(parents=True)
        for name, data in files.items():
            (new / name).write_bytes(data)
        (new / DIGESTS).write_text(json.dumps({"files": digests}, indent=2) + "\n", encoding="utf-8")
        _remove(folder)
        os.rename(new, folder)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror or error}.") from None
    finally:
        with contextlib.suppress(OSError):
            _remove(new)


def _remove(folder: Path) -> None:
    """Remove a folder of ours with the files that its list names; anything else in it keeps it there."""
    if not os.path.lexists(folder):
        return
    for name in [*_listed(folder), DIGESTS]:
        (folder / name).unlink(missing_ok=True)
    folder.rmdir()


def _foreign(folder: Path) -> list[str]:
    """Return what in a folder is not as `replace` wrote it; the folder's name, where it is none."""
    if not os.path.lexists(folder):
        return []
    if folder.is_symlink() or not folder.is_dir():
        return [folder.name]
    listed, foreign = _listed(folder), []
    for entry in folder.iterdir():
        is_file = entry.is_file() and not entry.is_symlink()
        if not (is_file and (entry.name == DIGESTS or digest_of(entry) == listed.get(entry.name))):
            foreign.append(entry.name)
    return sorted(foreign)


def digest_of(path: Path) -> str:
    """Return the SHA-256 digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _listed(folder: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        listed = dict_of(dict_of(json.loads(bytes_of(folder / DIGESTS))).get("files"))
        return {name: str(digest) for name, digest in listed.items() if Path(name).name == name}
    return {}
