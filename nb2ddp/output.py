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


def edited_since(folder: Path) -> list[str]:
    """Files in ``folder`` that are not as nb2ddp wrote them, by the digests in its report."""
    known: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        known = json.loads((folder / REPORT).read_text(encoding="utf-8")).get("files", {})
    return [
        name
        for name, digest in known.items()
        if (folder / name).is_file() and _digest_of(folder / name) != digest
    ]


def write(folder: Path, files: Mapping[str, str], report: Mapping[str, Any], *, force: bool) -> None:
    """Write ``files`` and the report, which remembers their digests.

    Every file is written under a temporary name first; none is replaced before all are there.

    Raises:
        OutputError: a file was edited since, or is not ours, or the folder cannot be written.
    """
    everything = {name: text.encode() for name, text in files.items()}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in everything.items()}
    everything[REPORT] = (
        json.dumps({**report, "files": digests}, indent=2, ensure_ascii=False) + "\n"
    ).encode()
    if not force:
        edited = edited_since(folder)
        foreign = [n for n in files if (folder / n).exists()] if not (folder / REPORT).exists() else []
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
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            staged.append((Path(temporary), target))
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(temporary, 0o644)
        for temporary_path, target in staged:
            os.replace(temporary_path, target)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror or error}.") from None
    finally:
        for temporary_path, _ in staged:
            temporary_path.unlink(missing_ok=True)


def _digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
