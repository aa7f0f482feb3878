"""Send files of this machine to Kaggle as a private dataset, which kernels attach."""

from __future__ import annotations

import json
import os
import re
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from nb2ddp.errors import KaggleError, SourcesError
from nb2ddp.kaggle.client import Client
from nb2ddp.kaggle.own_folder import digest_of
from nb2ddp.waiting import waiting

ARCHIVE = "files.zip"
"""What is uploaded: one file. Kaggle unpacks it; where it does not, the kernel does."""

POLL_SECONDS, READY_SECONDS = 5.0, 1800.0
_DATE = (1980, 1, 1, 0, 0, 0)  # equal files are an equal archive
_LONGEST_SLUG, _DIGITS = 50, 8


def upload(
    client: Client, owner: str, stem: str, base: Path, names: Iterable[str], say: Callable[[str], None]
) -> str:
    """Make a private dataset of files and folders below ``base``, and return its ``owner/slug`` when it is ready.

    Its name comes from what it holds, so that the same files are sent once.

    Raises KaggleError; SourcesError where Kaggle does not take it.
    """
    with TemporaryDirectory(prefix="nb2ddp-") as temporary:
        folder = Path(temporary)
        archive = folder / ARCHIVE
        count = _pack(archive, base, names)
        words = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")
        slug = f"{words[: _LONGEST_SLUG - _DIGITS - 1].rstrip('-') or 'files'}-{digest_of(archive)[:_DIGITS]}"
        ref = f"{owner}/{slug}"
        if client.dataset_state(ref) is None:
            size = archive.stat().st_size
            say(
                f"sending {count} file{'s' * (count != 1)} ({size / 1e6:.1f} MB) as the private dataset {ref}"
            )
            about = {"id": ref, "title": slug, "licenses": [{"name": "other"}]}
            (folder / "dataset-metadata.json").write_text(json.dumps(about), encoding="utf-8")
            with waiting(f"sending {ref}"):
                client.create_dataset(folder, ref)
        else:
            say(f"{ref} holds these files already")
    with waiting(f"Kaggle prepares {ref}"):
        _wait(client, ref)
    return ref


def _wait(client: Client, ref: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while (state := client.dataset_state(ref)) != "ready":
        if state in ("failed", "error", "deleted"):
            raise SourcesError(f"Kaggle could not make the dataset {ref}: its state is {state}.")
        if time.monotonic() > deadline:
            raise KaggleError(f"{ref} is not ready after {READY_SECONDS / 60:.0f} minutes: push again later.")
        time.sleep(POLL_SECONDS)


def _pack(archive: Path, base: Path, names: Iterable[str]) -> int:
    """Write the archive, with paths relative to ``base``; return how many files it holds."""
    count = 0
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for path in sorted({path for name in names for path in files_of(base / name)}):
            entry = zipfile.ZipInfo(path.relative_to(base).as_posix(), _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            with path.open("rb") as source, file.open(entry, "w", force_zip64=True) as target:
                while piece := source.read(1 << 20):
                    target.write(piece)
            count += 1
    return count


def files_of(path: Path) -> Iterator[Path]:
    """Yield a file, or all regular files of a folder but links that lead out of it."""
    if path.is_file():
        yield path
        return
    for place, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in (".git", "__pycache__"))
        for name in names:
            found = Path(place, name)
            if found.is_file() and found.resolve().is_relative_to(path.resolve()):
                yield found
