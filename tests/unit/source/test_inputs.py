"""What `convert` reads besides files: links over a loopback server, standard input, `# %%` scripts."""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from nb2ddp.errors import NotebookError
from nb2ddp.source import inputs
from nb2ddp.source import notebook as notebook_module
from nb2ddp.source.inputs import address_of, input_of, read_input
from tests.support.helpers import notebook
from tests.support.web_pages import endless_server

TEXT = nbformat.writes(notebook("x = 1", "md:# Title", "y = 2"))
PERCENT = """\
# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# Hello

# %%
# !pip install a
x = 1

# %%
# %env A=1
y = 2
"""

Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """A web server on a loopback port: what it answers by path, and what was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append((self.path, dict(self.headers)))
                server.answers.get(self.path, status(404))(self)

            def log_message(self, *arguments: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def body(text: str | bytes, length: int | None = None) -> Answer:
    data = text if isinstance(text, bytes) else text.encode()

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(data) if length is None else length))
        request.end_headers()
        request.wfile.write(data)

    return answer


def status(code: int) -> Answer:
    return lambda request: request.send_error(code)


def leads_to(address: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", address)
        request.end_headers()

    return answer


def drips(request: BaseHTTPRequestHandler) -> None:
    """A byte at a time, for ever."""
    request.send_response(200)
    request.end_headers()
    try:
        while True:
            request.wfile.write(b"{")
            time.sleep(0.02)
    except OSError:
        pass  # the reader has gone


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Server()
    yield made
    made.close()


def refused(link: str) -> str:
    with pytest.raises(NotebookError) as error:
        read_input(input_of(link))
    return str(error.value)


# ---- links --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "address"),
    [
        (
            "https://github.com/o/r/blob/main/a/b%20c.ipynb",
            "https://raw.githubusercontent.com/o/r/main/a/b%20c.ipynb",
        ),
        (
            "https://github.com/o/r/blob/v1/n.ipynb?plain=1#L3",
            "https://raw.githubusercontent.com/o/r/v1/n.ipynb",
        ),
        ("https://github.com/o/r/raw/main/n.ipynb", "https://raw.githubusercontent.com/o/r/main/n.ipynb"),
        (
            "https://raw.githubusercontent.com/o/r/m/n.ipynb",
            "https://raw.githubusercontent.com/o/r/m/n.ipynb",
        ),
        (
            "https://colab.research.google.com/github/o/r/blob/main/nb/n.ipynb#scrollTo=x",
            "https://raw.githubusercontent.com/o/r/main/nb/n.ipynb",
        ),
        (
            "https://colab.research.google.com/gist/u/0a1b2c3d/n.ipynb",
            "https://api.github.com/gists/0a1b2c3d",
        ),
        (
            "https://colab.research.google.com/drive/1AbC_d-E?usp=sharing",
            "https://drive.google.com/uc?export=download&id=1AbC_d-E",
        ),
        ("https://gist.github.com/someone/0a1b2c3d4e5f", "https://api.github.com/gists/0a1b2c3d4e5f"),
        ("https://gist.github.com/0a1b2c3d4e5f#file-n-ipynb", "https://api.github.com/gists/0a1b2c3d4e5f"),
        ("https://huggingface.co/o/r/blob/main/n.ipynb", "https://huggingface.co/o/r/resolve/main/n.ipynb"),
        (
            "https://huggingface.co/datasets/o/r/blob/main/n.ipynb",
            "https://huggingface.co/datasets/o/r/resolve/main/n.ipynb",
        ),
        ("https://gitlab.com/o/r/-/blob/main/n.ipynb", "https://gitlab.com/o/r/-/raw/main/n.ipynb"),
        (
            "https://nbviewer.org/github/o/r/blob/main/n.ipynb",
            "https://raw.githubusercontent.com/o/r/main/n.ipynb",
        ),
        ("https://example.org/n.ipynb?key=1", "https://example.org/n.ipynb?key=1"),
    ],
)
def test_a_link_to_a_page_stands_for_its_notebook(link: str, address: str) -> None:
    assert address_of(link) == address
    assert input_of(link).kind == "link"


@pytest.mark.parametrize(
    ("text", "kind", "path", "place"),
    [
        ("-", "stdin", "notebook.ipynb", ""),
        ("a b.ipynb", "file", "a b.ipynb", ""),
        ("C:x.ipynb", "file", "C:x.ipynb", ""),
        ("kaggle:me/my-run", "kaggle", "my-run.ipynb", "me/my-run"),
        ("https://www.kaggle.com/code/me/my-run/notebook", "kaggle", "my-run.ipynb", "me/my-run"),
        (
            "https://x.org/a/My%20Run.ipynb?raw=1",
            "link",
            "My Run.ipynb",
            "https://x.org/a/My%20Run.ipynb?raw=1",
        ),
        ("https://x.org/a/train.py", "link", "train.py", "https://x.org/a/train.py"),
        ("https://x.org/", "link", "notebook.ipynb", "https://x.org/"),
        (
            "https://x.org/..%2F..%2Fetc%2Fpasswd",
            "link",
            "passwd.ipynb",
            "https://x.org/..%2F..%2Fetc%2Fpasswd",
        ),
        ("https://x.org/a%1b[31m.ipynb", "link", "a_[31m.ipynb", "https://x.org/a%1b[31m.ipynb"),
    ],
)
def test_what_a_word_names(text: str, kind: str, path: str, place: str) -> None:
    what = input_of(text)
    assert (what.kind, what.path, what.place) == (kind, Path(path), place)


@pytest.mark.parametrize("link", ["file:///etc/passwd", "ftp://x.org/a.ipynb", "s3://bucket/a.ipynb"])
def test_only_http_is_read(link: str) -> None:
    with pytest.raises(NotebookError, match="only http and https"):
        input_of(link)


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("https://[x/a.ipynb", "is no link"),
        ("https://me:key@x.org/a.ipynb", "https://x.org/a.ipynb: a link with a user name or a password"),
    ],
)
def test_a_link_that_is_malformed_or_holds_a_password(link: str, words: str) -> None:
    with pytest.raises(NotebookError, match=words) as raised:
        input_of(link)
    assert "key" not in str(raised.value)


@pytest.mark.parametrize("text", ["kaggle:me", "kaggle:", "kaggle:me/a/b"])
def test_a_kernel_has_an_owner_and_a_name(text: str) -> None:
    with pytest.raises(NotebookError, match="write kaggle:OWNER/SLUG"):
        input_of(text)


# ---- downloads ----------------------------------------------------------------------------------


def test_a_notebook_behind_a_link_and_a_redirection(server: Server) -> None:
    server.answers["/a%20b.ipynb"] = leads_to(f"{server.address}/real")
    server.answers["/real"] = body(f"\ufeff{TEXT}")
    found, text = read_input(input_of(f"{server.address}/a b.ipynb"))
    assert (found.path, text) == (Path("a b.ipynb"), TEXT)
    assert [cell.source for cell in found.cells if cell.kind == "code"] == ["x = 1", "y = 2"]
    assert [path for path, _ in server.asked] == ["/a%20b.ipynb", "/real"]
    assert all("Authorization" not in headers for _, headers in server.asked)


def test_a_percent_script_behind_a_link(server: Server) -> None:
    server.answers["/train.py"] = server.answers["/no-name"] = body(PERCENT)
    for name, path in (("train.py", "train.py"), ("no-name", "no-name.py")):
        found, _ = read_input(input_of(f"{server.address}/{name}"))
        assert found.path == Path(path)
        assert [cell.number for cell in found.cells] == [0, 1, 2]


def test_the_notebook_of_a_gist(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_GISTS", f"{server.address}/gists")
    files = {
        name: {"filename": name, "raw_url": f"{server.address}/raw/{number}"}
        for number, name in enumerate(("a.md", "b.py", "c.ipynb"))
    }
    server.answers["/gists/0a1b2c3d"] = body(json.dumps({"files": files}))
    server.answers["/raw/2"] = body(TEXT)
    assert len(read_input(input_of("https://gist.github.com/me/0a1b2c3d"))[0].cells) == 3
    server.answers["/gists/0a1b2c3d"] = body(json.dumps({"files": {"a.md": files["a.md"]}}))
    assert "holds no .ipynb file" in refused("https://gist.github.com/me/0a1b2c3d")
    server.answers["/gists/0a1b2c3d"] = body("[]")
    assert "not what GitHub tells" in refused("https://gist.github.com/me/0a1b2c3d")


def test_a_page_is_not_a_notebook(server: Server) -> None:
    server.answers["/n.ipynb"] = body("\n<!DOCTYPE html><html>Sign in</html>")
    assert "is a web page, not a notebook" in refused(f"{server.address}/n.ipynb")


@pytest.mark.parametrize(("code", "why"), [(404, "does not exist, or is private"), (500, "refuses it")])
def test_an_http_error_is_told(server: Server, code: int, why: str) -> None:
    server.answers["/n.ipynb"] = status(code)
    told = refused(f"{server.address}/n.ipynb")
    assert why in told
    assert f"(HTTP {code})" in told


def test_no_network_is_told(server: Server) -> None:
    server.close()
    assert "needs a network connection: download the notebook" in refused(f"{server.address}/n.ipynb")


@pytest.mark.parametrize("address", ["file:///etc/hostname", "ftp://127.0.0.1/a", "data:text/plain,x"])
def test_a_redirection_to_something_else_is_not_followed(server: Server, address: str) -> None:
    server.answers["/n.ipynb"] = leads_to(address)
    told = refused(f"{server.address}/n.ipynb")
    assert "which is not read" in told or "neither http nor https" in told


def test_a_circle_of_redirections_ends(server: Server) -> None:
    server.answers["/n.ipynb"] = leads_to(f"{server.address}/n.ipynb")
    assert "leads in a circle" in refused(f"{server.address}/n.ipynb")


def test_what_is_too_large_is_not_read(server: Server) -> None:
    server.answers["/n.ipynb"] = body(b"{", length=notebook_module.MOST_BYTES + 1)
    assert "is larger than 100 MB" in refused(f"{server.address}/n.ipynb")


def test_what_does_not_tell_its_size_is_read_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with endless_server() as (link, taken):
        with pytest.raises(NotebookError, match="is larger than 2 MB"):
            read_input(input_of(link), most_bytes=2_000_000)
        assert 2_000_000 <= taken[0] < 40_000_000, "of 500 MB, with what the connection held"


def test_what_broke_off_is_told(server: Server) -> None:
    server.answers["/n.ipynb"] = body(TEXT, length=len(TEXT) + 10)
    assert f"broke off after {len(TEXT)} bytes" in refused(f"{server.address}/n.ipynb")


def test_a_server_that_never_ends(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "TIME_LIMIT", 0.3)
    server.answers["/n.ipynb"] = drips
    assert "was not complete after 0 seconds" in refused(f"{server.address}/n.ipynb")


def test_a_server_that_says_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_SILENCE", 0.3)
    server.answers["/n.ipynb"] = lambda request: time.sleep(1)
    assert "no answer in" in refused(f"{server.address}/n.ipynb")


def slow_headers(request: BaseHTTPRequestHandler) -> None:
    """A byte at a time, before anything of the notebook."""
    try:
        request.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while True:
            request.wfile.write(b"x")
            time.sleep(0.05)
    except OSError:
        pass  # the reader has gone


def slow_redirections(server: Server) -> Answer:
    number = 0

    def answer(request: BaseHTTPRequestHandler) -> None:
        nonlocal number
        number += 1
        server.answers[f"/{number}.ipynb"] = answer
        time.sleep(0.2)
        leads_to(f"{server.address}/{number}.ipynb")(request)

    return answer


@pytest.mark.parametrize("way", ["headers", "redirections", "name"])
def test_all_of_a_download_has_one_deadline(
    server: Server, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A byte, or a redirection, does not begin it anew; looking up a name is part of it."""
    monkeypatch.setattr(inputs, "TIME_LIMIT", 0.7)
    server.answers["/n.ipynb"] = slow_headers
    if way == "redirections":
        server.answers["/n.ipynb"] = slow_redirections(server)
    elif way == "name":
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(20))
    assert "was not complete after 1 seconds" in refused(f"{server.address}/n.ipynb")


def test_a_pipe_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "TIME_LIMIT", 0.3)
    reader, writer = os.pipe()
    with open(reader, "rb") as stream, open(writer, "wb"):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
        assert "standard input was not complete after 0 seconds" in refused("-")


MANY = {
    "nested": "[" * 200_000,
    "many lists": '{"a": [' + "[]," * 200_000 + "[]]}",
    "many values": '{"a": [' + "1," * 3_100_000 + "1]}",
}


@pytest.mark.parametrize("way", ["file", "stdin", "link", "kaggle"])
@pytest.mark.parametrize("name", MANY)
def test_every_way_in_has_the_same_limits(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, way: str
) -> None:
    """Python makes thirty times as many bytes of some JSON: it is refused before it is parsed."""
    monkeypatch.setattr("nbformat.reads", lambda *_, **__: pytest.fail("it is parsed"))
    server.answers["/n.ipynb"] = body(MANY[name])
    (tmp_path / "n.ipynb").write_text(MANY[name])
    given(monkeypatch, MANY[name].encode())
    words = {
        "file": str(tmp_path / "n.ipynb"),
        "stdin": "-",
        "link": f"{server.address}/n.ipynb",
        "kaggle": "kaggle:me/n",
    }
    with pytest.raises(NotebookError, match="holds more than a notebook's cells"):
        read_input(input_of(words[way]), lambda _: MANY[name])


@pytest.mark.parametrize("way", ["file", "stdin", "link", "kaggle"])
def test_every_way_in_has_the_same_size(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    for module in (inputs, notebook_module):
        monkeypatch.setattr(module, "MOST_BYTES", 1000)
    large = TEXT.replace("x = 1", f"x = '{'a' * 1000}'")
    server.answers["/n.ipynb"] = body(large)
    (tmp_path / "n.ipynb").write_text(large)
    given(monkeypatch, large.encode())
    words = {
        "file": str(tmp_path / "n.ipynb"),
        "stdin": "-",
        "link": f"{server.address}/n.ipynb",
        "kaggle": "kaggle:me/n",
    }
    with pytest.raises(NotebookError, match="is larger than 0 MB"):
        read_input(input_of(words[way]), lambda _: large)


def test_a_password_in_a_link_is_not_repeated(server: Server) -> None:
    host = server.address.removeprefix("http://")
    told = refused(f"http://me:hunter2@{host}/n.ipynb")
    assert host in told
    assert "hunter2" not in told


# ---- standard input and scripts -----------------------------------------------------------------


def given(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))


@pytest.mark.parametrize(("text", "path"), [(TEXT, "notebook.ipynb"), (PERCENT, "notebook.py")])
def test_standard_input(monkeypatch: pytest.MonkeyPatch, text: str, path: str) -> None:
    given(monkeypatch, text.encode())
    found, kept = read_input(input_of("-"))
    assert (found.path, kept) == (Path(path), text)


@pytest.mark.parametrize(
    ("data", "why"), [(b"\xff\xf0{", "not text in UTF-8"), (b"", "without `# %%` lines")]
)
def test_standard_input_that_is_no_notebook(monkeypatch: pytest.MonkeyPatch, data: bytes, why: str) -> None:
    given(monkeypatch, data)
    assert why in refused("-")


def test_a_script_that_nbconvert_exported_has_the_cells_of_its_notebook(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("#!/usr/bin/env python\n# coding: utf-8\n\n# In[1]:\n\n\nx = 1\n\n\n# In[ ]:\n\n\nx\n")
    found, _ = read_input(input_of(str(path)))
    assert [cell.source.strip() for cell in found.cells if cell.source] == ["x = 1", "x"]


def test_a_percent_script_has_cells_and_magics(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(PERCENT)
    found, text = read_input(input_of(str(path)))
    assert text is None
    assert [(cell.kind, cell.source, cell.number) for cell in found.cells] == [
        ("markdown", "Hello", 0),
        ("code", "!pip install a\nx = 1", 1),
        ("code", "%env A=1\ny = 2", 2),
    ]


@pytest.mark.parametrize(
    ("commented", "source"),
    [
        ("# !pip install a \\\n#   b\nx = 1", "!pip install a \\\n  b\nx = 1"),
        ("if x:\n    # files = !ls\n    pass", "if x:\n    files = !ls\n    pass"),
        ("# %%time\n# %cd x", "%%time\n%cd x"),
        ("# # !pip install a", "# !pip install a"),  # a comment in the notebook, too
        ("# copy the weights\n# ls them\n# why?\n# 5 % of all, x = % y", None),  # words, and no commands
        ('x = """\n# !pip install a\n"""', None),
        ("if x:\n#     !pip install a\n    pass", "if x:\n    !pip install a\n    pass"),
        ("# %cd C:\\data\\\nx = 1  # one", "%cd C:\\data\\\nx = 1  # one"),
        ("# %matplotlib inline  # noescape", None),
        ("# if colab:\n#     !pip install a\nx = 1", None),
    ],
)
def test_a_percent_script_has_magics_and_other_comments(
    tmp_path: Path, commented: str, source: str | None
) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"# %%\n{commented}\n")
    found, _ = read_input(input_of(str(path)))
    assert [cell.source for cell in found.cells] == [source or commented]


def test_a_percent_script_may_say_that_its_comments_are_no_magics(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "# ---\n# jupyter:\n#   jupytext:\n#     comment_magics: false\n# ---\n# %%\n# !rm -r a\nx = 1\n"
    )
    found, _ = read_input(input_of(str(path)))
    assert [cell.source for cell in found.cells] == ["# !rm -r a\nx = 1"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("print(1)\n", "without `# %%` lines"),
        ("# ---\n# jupyter:\n#   kernelspec: {}\n# ---\n# %%\nx = 1\n", "fix its header"),
    ],
)
def test_a_script_that_is_no_notebook(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    assert why in refused(str(path))


def test_cells_without_metadata_are_read(tmp_path: Path) -> None:
    """GitHub and Colab show and run such a notebook, which Jupyter refuses."""
    content = json.loads(TEXT)
    del content["cells"][2]["metadata"]
    (tmp_path / "x.ipynb").write_text(json.dumps(content), encoding="utf-8")
    read = notebook_module.read_notebook(tmp_path / "x.ipynb")
    assert [cell.source for cell in read.cells] == ["x = 1", "# Title", "y = 2"]
