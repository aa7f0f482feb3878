"""The folder of what was fetched. Nothing is written outside of it, nor over what was not fetched."""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from pathlib import Path, PureWindowsPath

from nb2ddp.errors import DownloadError
from nb2ddp.kaggle.untrusted import shown, text_of
from nb2ddp.regular_files import json_object

OWN = ".nb2ddp_fetch"
"""Our folder in it: files that are not complete yet, and the digests of those that are."""

_MAX_NAME = 255  # bytes of one part of a path, on every usual file system
_UNSAFE = ("Cc", "Cs", "Zl", "Zp")  # Unicode categories: controls, half characters, line and paragraph ends


def digest_of(path: Path) -> str:
    """Return the SHA-256 digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
        known = json_object(self._own / "files.json")
        self._digests = {name: text_of(digest) for name, digest in known.items()}

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


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
