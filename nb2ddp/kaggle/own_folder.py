"""Folders of ours: a copy of what is sent, and what was fetched. Nothing in them is replaced that is not ours."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import unicodedata
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath

from nb2ddp.errors import DownloadError, OutputError
from nb2ddp.kaggle.untrusted import dict_of, shown, text_of
from nb2ddp.regular_files import bytes_of

DIGESTS = ".nb2ddp.json"
"""The file in such a folder that holds the digests of the others."""

OWN = ".nb2ddp_fetch"
"""Our folder in it: files that are not complete yet, and the digests of those that are."""

_MAX_NAME = 255  # bytes of one part of a path, on every usual file system
_UNSAFE = ("Cc", "Cs", "Zl", "Zp")  # Unicode categories: controls, half characters, line and paragraph ends


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


# ---- what was fetched ---------------------------------------------------------------------------------------


class OutputFolder:
    """A folder of fetched files. Nothing is written outside of it, nor over what was not fetched.

    Raises DownloadError when the folder cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.root = folder.resolve()
            self._own = self.root / OWN
            if self._own.is_symlink() or (self._own.exists() and not self._own.is_dir()):
                raise DownloadError(f"{folder / OWN} is no folder of nb2ddp's; move it away.")
            self._own.mkdir(parents=True, exist_ok=True)
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle
            raise DownloadError(f"{folder} cannot be written: {_reason(error)}.") from None
        self._digests = _digests(self._own / "files.json")

    def place(self, name: str) -> Path:
        """Return the path of a remote file.

        Raises DownloadError for a name that leads outside or that no file system takes.
        """
        if reason := _why_not(name):
            raise DownloadError(f"{shown(name)!r} {reason}, so it was left out.")
        path = self.root.joinpath(*name.split("/"))
        try:
            is_inside = path.parent.resolve().is_relative_to(self.root)
        except (OSError, RuntimeError) as error:
            raise DownloadError(f"{shown(name)} cannot be written: {_reason(error)}.") from None
        if not is_inside:
            raise DownloadError(
                f"{shown(name)!r} would lie outside of {self.folder}, where a link leads, so it was left out."
            )
        return path

    def has_fetched(self, path: Path) -> bool:
        """Return whether a file of this path was fetched before."""
        return self._key(path) in self._digests

    def check_ours(self, path: Path) -> None:
        """Raise DownloadError when there is a file that was not fetched, or was changed since."""
        if not os.path.lexists(path):
            return
        known = self._digests.get(self._key(path))
        if path.is_symlink() or not path.is_file() or known is None or digest_of(path) != known:
            raise DownloadError(
                f"{shown(str(self.folder / self._key(path)))} is here and is not as nb2ddp fetched it, so it "
                "stays. Move it away, or name another folder with -o."
            )

    def staged(self, path: Path) -> Path:
        """Return where a file is kept until it is complete."""
        return self._own / hashlib.sha256(self._key(path).encode()).hexdigest()[:32]

    def keep(self, path: Path) -> None:
        """Move a complete file from where it was staged to its place, and remember its digest."""
        self.check_ours(path)
        staged = self.staged(path)
        self._digests[self._key(path)] = digest_of(staged)
        new = self._own / "files.json.new"
        new.write_text(json.dumps(self._digests, indent=1) + "\n", encoding="utf-8")
        os.replace(new, self._own / "files.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(staged, path)

    def write(self, name: str, text: str) -> None:
        """Write a file of our own making."""
        path = self.place(name)
        self.staged(path).write_bytes(text.encode(errors="replace"))
        self.keep(path)

    def _key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def _why_not(name: str) -> str | None:
    """Return why a name is not to be used as a path below a folder."""
    parts = re.split(r"[/\\]", name)
    if any(unicodedata.category(c) in _UNSAFE for c in name):
        return "holds control characters"
    if name.startswith(("/", "\\")) or PureWindowsPath(name).drive or ".." in parts:
        return "would lie outside of the folder"
    if "" in parts or "." in parts:
        return "is no path of a file"
    if any(len(part.encode()) > _MAX_NAME for part in parts):
        return f"has a part of over {_MAX_NAME} bytes"
    if parts[0].lower() == OWN:
        return "is a name that nb2ddp keeps for itself"
    return None


def _digests(file: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        known = dict_of(json.loads(bytes_of(file)))
        return {name: text_of(digest) for name, digest in known.items()}
    return {}


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
