"""Fetch a kernel's output."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from nb2ddp.errors import DownloadError, KaggleError
from nb2ddp.kaggle.client import Client, RemoteFile
from nb2ddp.kaggle.own_folder import OutputFolder
from nb2ddp.kaggle.untrusted import shown
from nb2ddp.waiting import waiting

_NO_FILE_WILL_FIT = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def output_of(ref: str) -> Path:
    """Return the folder that a kernel's output goes to unless told otherwise."""
    return Path(f"{ref.partition('/')[2]}_output")


def fetch(client: Client, ref: str, folder: Path, say: Callable[[str], None]) -> list[Path]:
    """Fetch every file of the output, and the log; files that are here already stay.

    A file that fails does not keep the others from coming.

    Raises DownloadError at the end when one has failed.
    """
    here, paths, failures = OutputFolder(folder), [], []
    for file in client.output(ref):
        try:
            path = here.place(file.name)
            with waiting(f"fetching {shown(file.name)}"):
                is_new = _bring(client, file, path, here)
        except DownloadError as error:
            failures.append(str(error))
            continue
        except OSError as error:
            sentence = f"{shown(str(folder / file.name))} cannot be written: {error.strerror or error}."
            if error.errno in _NO_FILE_WILL_FIT:
                raise DownloadError("\n".join([*failures, sentence])) from None
            failures.append(sentence)
            continue
        say(f"{shown(str(folder / file.name))} ({_size(path)}{'' if is_new else ', was here'})")
        paths.append(path)
    try:
        if text := client.log(ref):
            here.write(f"{ref.partition('/')[2]}.log", text)
    except DownloadError as error:
        failures.append(str(error))
    except KaggleError:  # there is none
        pass
    except OSError as error:
        failures.append(f"the log cannot be written: {error.strerror or error}.")
    if failures:
        raise DownloadError("\n".join(failures))
    return paths


def _bring(client: Client, file: RemoteFile, path: Path, here: OutputFolder) -> bool:
    """Fetch one file, going on where an earlier try broke off; return False when it is here already."""
    with client.download(file) as download:
        if here.has_fetched(path) and download.is_at(path):
            return False
        here.check_ours(path)
        download.save(here.staged(path))
    here.keep(path)
    return True


def _size(path: Path) -> str:
    size = path.stat().st_size
    thousands = min(len(str(size)) - 1, 9) // 3
    return f"{size / 1000**thousands:.3g} {('B', 'KB', 'MB', 'GB')[thousands]}"
