"""Credentials, in a process of its own each: they are read when the client is imported."""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nb2ddp import errors
from tests.support.kaggle_client import converted, imported_for_loopback, nb2ddp, server
from tests.support.kaggle_server import KEY, USER, KaggleServer
from tests.support.limits import LONG

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kaggle") is None, reason="needs the extra [kaggle]")


def run(
    tmp_path: Path,
    *arguments: str,
    code: str | None = None,
    stdin: Any = subprocess.DEVNULL,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if "proxy" not in k.lower() and not k.startswith("KAGGLE")}
    return subprocess.run(
        [sys.executable, *(["-c", code] if code else ["-m", "nb2ddp"]), *arguments],
        env={**clean, "HOME": str(tmp_path), "KAGGLE_CONFIG_DIR": str(tmp_path / ".kaggle"), **environment},
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path, server: KaggleServer, converted: Path) -> str:
    return str(converted.resolve())


def test_no_credentials(tmp_path: Path, server: KaggleServer, folder: str) -> None:
    done = run(tmp_path, "push", "--kaggle", folder, **server.environment)
    assert done.returncode == 1
    assert done.stdout == ""
    for word in ("access_token", "KAGGLE_API_TOKEN", "kaggle.json", "KAGGLE_KEY", "kaggle auth login"):
        assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert server.asked == []


def test_a_dry_run_needs_no_credentials_and_asks_for_the_owner_at_a_terminal(
    tmp_path: Path, server: KaggleServer, folder: str
) -> None:
    """The client without credentials closes the standard input, which is where the answer comes from."""
    import pty

    ours, theirs = pty.openpty()
    os.write(ours, b"grace\n")
    done = run(tmp_path, "push", "--kaggle", folder, "--dry-run", stdin=theirs, **server.environment)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 0, done.stderr
    assert "Your Kaggle user name: " in done.stderr
    assert '"slug": "grace/tiny-run"' in done.stdout
    assert server.asked == []


@pytest.mark.parametrize(
    "kind",
    [
        "token",
        *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("token file", "login")),
        "kaggle.json",
    ],
)
def test_each_kind_of_credentials(tmp_path: Path, server: KaggleServer, folder: str, kind: str) -> None:
    home = tmp_path / ".kaggle"
    home.mkdir()
    environment = dict(server.environment)
    if kind == "token":
        environment |= {"KAGGLE_API_TOKEN": f"KGAT_{KEY}", "VERBOSE": "1"}
    elif kind == "token file":
        (home / "access_token").write_text(f"KGAT_{KEY}\n")
    elif kind == "kaggle.json":
        (home / "kaggle.json").write_text(json.dumps({"username": USER, "key": KEY}))
    else:
        login = {"refresh_token": "r", "username": USER, "scopes": []}
        (home / "credentials.json").write_text(json.dumps(login))
    done = run(tmp_path, "push", "--kaggle", folder, **environment)
    assert done.returncode == 0, done.stderr
    assert [request["slug"] for request in server.pushes] == ["ada/tiny-run"]
    assert KEY not in done.stdout + done.stderr


# As `doctor` asks, and then as `push` does; the client reads its files whenever it is imported.
KNOWN_HERE = """
import sys
from nb2ddp.cli import main
from nb2ddp.errors import CredentialsError
from nb2ddp.kaggle.credentials import credentials_known_here
try:
    assert credentials_known_here() is None
except CredentialsError as error:
    print(error)
for name in [name for name in sys.modules if name.partition(".")[0] == "kaggle"]:
    del sys.modules[name]
main()
"""


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("access_token", "access_token (Is a directory): put the file that Kaggle gave you there"),
        (
            "KAGGLE_API_TOKEN",
            "(Is a directory): put the file that Kaggle gave you there, or let KAGGLE_API_TOKEN",
        ),
        ("no text", "the Kaggle client cannot start (UnicodeDecodeError)"),
        *(
            pytest.param(kind, words, marks=pytest.mark.thorough)
            for kind, words in (
                ("kaggle.json", "kaggle.json (Is a directory): put the file that Kaggle gave you there"),
                ("no json", "no Kaggle credentials that work are on this machine"),
                ("no object", "the Kaggle client cannot start (TypeError)"),
                ("config file", "no Kaggle credentials that work are on this machine"),
            )
        ),
    ],
)
def test_credentials_of_another_form(
    tmp_path: Path, server: KaggleServer, folder: str, kind: str, words: str
) -> None:
    home, environment = tmp_path / ".kaggle", dict(server.environment)
    if kind == "config file":
        home.write_text("a file")
    elif kind == "KAGGLE_API_TOKEN":
        environment[kind] = str(tmp_path)
    elif kind.startswith("no "):
        home.mkdir()
        name, content = {
            "no text": ("access_token", b"\xff\xfe"),
            "no json": ("kaggle.json", b"{"),
            "no object": ("kaggle.json", b"[5]"),
        }[kind]
        (home / name).write_bytes(content)
    else:
        (home / kind).mkdir(parents=True)
    done = run(tmp_path, "push", folder, code=KNOWN_HERE, **environment)
    assert "Traceback" not in done.stderr, done.stderr
    assert words in done.stderr
    assert done.returncode == errors.CredentialsError.exit_code


def test_a_token_that_was_revoked(tmp_path: Path, server: KaggleServer, folder: str) -> None:
    done = run(tmp_path, "push", "--kaggle", folder, **server.environment, KAGGLE_API_TOKEN="KGAT_old")
    assert done.returncode == 1
    assert "expired or was revoked" in done.stderr
    assert server.pushes == []


WITHOUT_KAGGLE = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("kaggle", "kagglesdk", "requests"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
import nb2ddp
from nb2ddp.cli import main
main()
"""


def test_without_the_client_everything_else_works(tmp_path: Path, server: KaggleServer, folder: str) -> None:
    done = run(
        tmp_path, "convert", f"{folder}/../tiny run.ipynb", "-o", str(tmp_path / "out"), code=WITHOUT_KAGGLE
    )
    assert done.returncode == 0, done.stderr
    for arguments in (["push", folder, "--dry-run"], ["status", "ada/tiny-run"]):
        done = run(tmp_path, *arguments, code=WITHOUT_KAGGLE)
        assert done.returncode == 1
        assert (
            f"the Kaggle client is not installed; install it with `{errors.install_command('kaggle')}`"
            in done.stderr
        )
        assert "Traceback" not in done.stderr
