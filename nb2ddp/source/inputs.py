"""Read a notebook from where people have it: a path, standard input, or a link. Nothing read is executed.

Links to pages of GitHub, Gist, Colab, Hugging Face, GitLab and nbviewer stand for the notebook on that page.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from nb2ddp.errors import NotebookError
from nb2ddp.source.notebook import MOST_BYTES, Notebook, decoded, parse_notebook, read_notebook

TIME_LIMIT = 60.0
"""Seconds for a notebook to come from a link, with names looked up, headers and redirections, or standard input."""

_SILENCE = 20.0  # seconds without a byte
_PIECE = 2**16
_GISTS = "https://api.github.com/gists"
_SUFFIXES = (".ipynb", ".py")
_KAGGLE_PAGE = re.compile(r"https?://(?:www\.)?kaggle\.com/code/([\w-]+/[\w-]+)(?:[/?#].*)?")
_KAGGLE = re.compile(r"kaggle:(?:/{0,2})([\w-]+/[\w-]+)/?")
_SLOW = "{} was not complete after {:.0f} seconds."
_LARGE = "{} is larger than {:.0f} MB; clear its outputs, and save it."
_NO_NETWORK = "this needs a network connection: download the notebook, and give the file"


@dataclass(frozen=True)
class Input:
    """What the user named: ``text`` as it was typed, ``path`` the file, or the name that it will have.

    ``kind`` is "file", "stdin", "link" or "kaggle"; ``place`` is the address or the kernel of the latter two.
    """

    text: str
    kind: str
    path: Path
    place: str = ""

    @property
    def is_file(self) -> bool:
        return self.kind == "file"


def input_of(text: str) -> Input:
    """Tell what a word of the command line names; nothing is read.

    Raises NotebookError for a link that is neither http nor https.
    """
    if text == "-":
        return Input(text, "stdin", Path("notebook.ipynb"))
    kernel = _KAGGLE.fullmatch(text) or _KAGGLE_PAGE.fullmatch(text)
    if kernel is not None:
        return Input(text, "kaggle", Path(f"{kernel[1].partition('/')[2]}.ipynb"), kernel[1])
    if text.startswith("kaggle:"):
        raise NotebookError(f"{text} names no notebook of Kaggle; write kaggle:OWNER/SLUG.")
    scheme = re.match(r"([A-Za-z][\w+.-]+)://", text)
    if scheme is None:
        return Input(text, "file", Path(text))
    if scheme[1].lower() not in ("http", "https"):
        raise NotebookError(f"{_shown(text)}: only http and https links are read; give a path otherwise.")
    try:
        if "@" in urlsplit(text).netloc:
            raise NotebookError(f"{_shown(text)}: a link with a user name or a password is not read.")
        name = PurePosixPath(unquote(urlsplit(text).path)).name
        return Input(_shown(text), "link", Path(file_name(name)), address_of(text))
    except ValueError as error:
        raise NotebookError(f"{text} is no link ({error}).") from None


def read_input(
    what: Input,
    kaggle: Callable[[str], str] | None = None,
    *,
    public_only: bool = False,
    most_bytes: int | None = None,
) -> tuple[Notebook, str | None]:
    """Return the notebook, and its text where it lies in no file here.

    ``kaggle`` gives the source of a kernel by its ``owner/slug``. With ``public_only`` links lead to public
    addresses alone. No more than ``most_bytes`` are read from a link or standard input.

    Raises NotebookError where it cannot be had, and what ``kaggle`` raises.
    """
    if what.kind == "file":
        return read_notebook(what.path), None
    most_bytes = MOST_BYTES if most_bytes is None else most_bytes
    if what.kind == "stdin":
        name, limit = "standard input", most_bytes
        # its raw stream: another thread that still waits for the buffered one keeps Python from ending
        stream = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        text = decoded(_in_time(lambda: _limited(stream, name, limit), name), name)
    elif what.kind == "kaggle":
        if kaggle is None:
            raise NotebookError(f"{what.text}: notebooks of Kaggle are not read here.")
        text = kaggle(what.place)
    else:
        text = decoded(download(what.place, most_bytes, public_only=public_only), what.text)
    path = what.path
    if not text.lstrip("\ufeff \t\r\n").startswith("{"):
        if re.match(r"\s*<(?:!doctype|html)", text, re.IGNORECASE):
            raise NotebookError(f"{what.text} is a web page, not a notebook; is it private, or moved?")
        path = path.with_suffix(".py")
    elif path.suffix != ".ipynb":
        path = path.with_suffix(".ipynb")
    return parse_notebook(path, text), text


# ---- links -------------------------------------------------------------------------------------------------


def address_of(link: str) -> str:
    """Return the address of the file that a link to a page shows."""
    parts = urlsplit(link)
    host, path = (parts.hostname or "").removeprefix("www."), parts.path
    colab = "colab.research.google.com"
    if host == colab and (found := re.fullmatch(r"/drive/([\w-]+)/?", path)):
        return f"https://drive.google.com/uc?export=download&id={found[1]}"
    if host in (colab, "nbviewer.org") and (found := re.fullmatch(r"/(github|gist)/(.+)", path)):
        return address_of(f"https://{'gist.' * (found[1] == 'gist')}github.com/{found[2]}")
    if host == "github.com" and (found := re.fullmatch(r"/([^/]+/[^/]+)/(?:blob|raw)/(.+)", path)):
        return f"https://raw.githubusercontent.com/{found[1]}/{found[2]}"
    if host == "gist.github.com" and (found := re.match(r"/(?:[^/]+/)?([0-9a-f]{6,40})(?:/|$)", path)):
        return f"{_GISTS}/{found[1]}"
    if host == "huggingface.co":
        return urlunsplit(("https", host, path.replace("/blob/", "/resolve/", 1), "", ""))
    if host == "gitlab.com":
        return urlunsplit(("https", host, path.replace("/-/blob/", "/-/raw/", 1), "", ""))
    return link


def file_name(text: str) -> str:
    """Return a name from outside as that of a notebook's file, which any file system can hold."""
    name = "".join(c if c.isprintable() and c not in '/\\:*?"<>|' else "_" for c in text)
    name = name.encode()[:200].decode(errors="ignore").lstrip(".") or "notebook"
    return name if name.endswith(_SUFFIXES) else f"{name[:40]}.ipynb"


def _shown(link: str) -> str:
    """Return a link without a name and a password, which may stand before the host."""
    parts = urlsplit(link)
    if "@" in parts.netloc:
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    return urlunsplit(parts)


def download(address: str, most_bytes: int, *, public_only: bool = False) -> bytes:
    """Return what lies at an address.

    Raises NotebookError: it cannot be reached, is not there, is too large, or takes too long.
    """

    def fetched() -> bytes:
        data = _get(address, public_only, most_bytes)
        if not address.startswith(f"{_GISTS}/"):
            return data
        return _get(_file_of_gist(data, address), public_only, most_bytes)

    return _in_time(fetched, _shown(address))


def _in_time(work: Callable[[], bytes], shown: str) -> bytes:
    """Return what ``work`` returns within the time limit, in a thread that is left behind then.

    A timeout of a socket begins anew with each byte, and looking up a name has none.
    """
    made: Future[bytes] = Future()

    def run() -> None:
        try:
            made.set_result(work())
        except BaseException as error:
            made.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return made.result(TIME_LIMIT)
    except TimeoutError:
        raise NotebookError(_SLOW.format(shown, TIME_LIMIT)) from None


def _file_of_gist(answer: bytes, address: str) -> str:
    """Return the address of a gist's notebook, from what GitHub tells of the gist."""
    try:
        files: list[dict[str, Any]] = list(json.loads(answer)["files"].values())
        for suffix in _SUFFIXES:
            for file in files:
                if file["filename"].endswith(suffix) and file["raw_url"].startswith(("https:", "http:")):
                    return str(file["raw_url"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NotebookError(f"{address} is not what GitHub tells of a gist.") from None
    raise NotebookError(f"The gist at {address} holds no .ipynb file.")


def _get(address: str, public_only: bool, most_bytes: int) -> bytes:
    import http.client
    import urllib.error
    import urllib.request

    shown = _shown(address)
    request = urllib.request.Request(
        quote(address, safe="%/:=&?~#+!$,;'@()*[]"), headers={"User-Agent": "nb2ddp"}
    )
    try:
        with _opener(public_only).open(request, timeout=_SILENCE) as answer:
            if (answer.length or 0) > most_bytes:
                raise NotebookError(_LARGE.format(shown, most_bytes / 1e6))
            data = _limited(answer, shown, most_bytes)
            if answer.length:  # what the server has announced and not sent
                raise NotebookError(f"{shown} broke off after {len(data)} bytes; try again.")
            return data
    except urllib.error.HTTPError as error:
        error.close()
        raise NotebookError(f"{shown} cannot be read: {_reason(error.code)} (HTTP {error.code}).") from None
    except TimeoutError:
        raise NotebookError(f"{shown} cannot be read: no answer in {_SILENCE:.0f} seconds.") from None
    except urllib.error.URLError as error:
        raise NotebookError(f"{shown} cannot be reached ({error.reason}); {_NO_NETWORK}.") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        why = str(error) or type(error).__name__
        raise NotebookError(f"{shown} cannot be read ({why}); {_NO_NETWORK}.") from None


def _reason(code: int) -> str:
    if code < 400:
        return "it leads in a circle, or to something that is neither http nor https"
    return "it does not exist, or is private" if code in (401, 403, 404, 410) else "the server refuses it"


def _opener(public_only: bool) -> Any:
    """Return what opens http and https links, and follows redirections to these alone."""
    import urllib.error
    import urllib.request

    class Redirections(urllib.request.HTTPRedirectHandler):
        def redirect_request(
            self, request: Any, fp: Any, code: int, message: str, headers: Any, address: str
        ) -> Any:
            schemes = ("https",) if request.full_url.startswith("https:") else ("http", "https")
            if urlsplit(address).scheme not in schemes:
                fp.close()
                raise urllib.error.URLError(f"it leads to {_shown(address)}, which is not read")
            return super().redirect_request(request, fp, code, message, headers, address)

    if not public_only:
        return urllib.request.build_opener(Redirections())
    from nb2ddp.source.public_net import PublicHTTPHandler, PublicHTTPSHandler

    no_proxy = urllib.request.ProxyHandler({})
    return urllib.request.build_opener(no_proxy, PublicHTTPHandler(), PublicHTTPSHandler(), Redirections())


def _limited(stream: IO[bytes], shown: str, most_bytes: int) -> bytes:
    """Return all of a stream, which may not be too large."""
    data = bytearray()
    while piece := stream.read(_PIECE):
        data += piece
        if len(data) > most_bytes:
            raise NotebookError(_LARGE.format(shown, most_bytes / 1e6))
    return bytes(data)
