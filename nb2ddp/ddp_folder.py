"""Write a conversion's files: all or nothing, and never over somebody's edits."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nb2ddp.errors import OutputError

REPORT = "report.json"


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
