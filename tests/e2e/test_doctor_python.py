"""``nb2ddp doctor``: the Python that trains, and the packages in it."""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from nb2ddp.doctor import versions
from tests.support.doctor import bare, check, doctor, examined, install


def test_packages_that_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: str) -> None:
    install(tmp_path, "unsloth", "2026.10.9", "unsloth_zoo>=2026.10.9", "transformers<=5.17.0,!=5.0.0")
    install(tmp_path, "unsloth_zoo", "2026.10.9", 'mlx==0.1; sys_platform == "win32"', 'x; extra == "more"')
    install(tmp_path, "transformers", "4.56.2", "Torch")
    install(tmp_path, "torch", "2.11.0+cu128")
    _, results = examined(monkeypatch, bare, tmp_path)
    check(results["versions"], "ok", "unsloth 2026.10.9, unsloth-zoo 2026.10.9, transformers 4.56.2 fit")
    check(results["missing packages"], "ok")


def test_packages_that_contradict_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: str
) -> None:
    install(tmp_path, "unsloth", "2026.10.9", "transformers!=5.16.0,<=5.17.0", "trl>=0.18", "certifi>=2")
    install(tmp_path, "trl", "1.15.0", "transformers>=5.1", "accelerate")
    install(tmp_path, "transformers", "5.18.0", f'sys; python_version < "{sys.version_info.major}"')
    install(tmp_path, "certifi", "1.0")
    install(tmp_path / "later", "transformers", "5.17.0")  # behind the other on the path: not the one in use
    here, results = examined(monkeypatch, bare, f"{tmp_path}{os.pathsep}{tmp_path / 'later'}")
    outcome = results["versions"]
    check(
        outcome, "fail", "transformers 5.18.0, but unsloth 2026.10.9 asks for transformers!=5.16.0,<=5.17.0"
    )
    assert "trl" not in outcome.seen.replace("'trl'", "")
    advised = {
        (r := Requirement(text)).name: r.specifier for text in shlex.split(outcome.to_do.strip("`"))[4:]
    }
    assert set(advised) == {"transformers", "certifi"}
    allowed = [v for v in ("5.0.0", "5.1.0", "5.16.0", "5.17.0", "5.18.0") if v in advised["transformers"]]
    assert allowed == ["5.1.0", "5.17.0"]  # what both of them take
    check(results["missing packages"], "warn", "accelerate (trl)", "--no-deps")
    assert here.installed["unsloth"] == "2026.10.9"

    side = replace(here, installed={**here.installed, "transformers": "5.17.0"})
    check(versions.versions_fit(side), "warn", "certifi 1.0, but unsloth", "'certifi>=2'")


def test_metadata_that_is_broken_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: str
) -> None:
    install(tmp_path, "trl", "1.15.0", "what is >>> this", "peft>=1", "accelerate>=1", "gone>=1")
    install(tmp_path, "peft", "of-my-own")
    (tmp_path / "half_removed-1.0.dist-info").mkdir()
    (tmp_path / "accelerate-.dist-info").mkdir()
    (tmp_path / "accelerate-.dist-info" / "METADATA").write_text("Name: accelerate\n")
    _, results = examined(monkeypatch, bare, tmp_path)
    check(results["versions"], "ok", "trl 1.15.0")
    check(results["missing packages"], "warn", "gone (trl)")


@pytest.mark.parametrize(
    ("torch", "seen"),
    [
        (None, "No module named 'torch'"),
        ("raise OSError('libcudart.so.13: cannot open shared object file')", "OSError: libcudart.so.13"),
        ("raise RuntimeError()", "RuntimeError"),
        ("import os; os.abort()", "SIGABRT"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import os; os._exit(7)", "exit code 7"),
        ("print('{no JSON'); raise SystemExit(0)", "SystemExit"),
        ("import time; time.sleep(999)", "not done after 10 seconds"),
        ("", "AttributeError"),  # a folder called torch, as `git clone` leaves one
    ],
)
def test_a_broken_torch_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: str, torch: str | None, seen: str
) -> None:
    install(tmp_path, "peft", "0.21.2")
    if torch is not None:
        (tmp_path / "torch.py").write_text(torch)
    _, results = examined(monkeypatch, bare, tmp_path, timeout=10 if "sleep" in str(torch) else 120)
    check(results["torch"], "fail", seen, "--timeout" if "sleep" in str(torch) else f"`{bare} -m pip install")
    check(results["versions"], "ok", "peft 0.21.2")  # is known all the same


@pytest.mark.parametrize("name", ["missing", "folder", "no_program"])
def test_a_python_that_is_none_is_a_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "no_program").write_text("#!/bin/false\n")
    (tmp_path / "no_program").chmod(0o755)
    done = doctor("--cpu", "--python", tmp_path / name)
    assert done.returncode == 1
    assert done.stdout.startswith(f"fail  {tmp_path / name} does not work as a Python: ")
    assert "--python" in done.stdout.splitlines()[1]
    assert "Traceback" not in done.stdout + done.stderr


def test_it_runs_where_only_click_and_packaging_are(bare: str) -> None:
    absent = ("libcst", "nbformat", "nbconvert", "IPython", "jinja2", "rich", "torch", "kaggle", "requests")
    prelude = "".join(f"sys.modules[{name!r}] = None\n" for name in absent)
    done = doctor("--cpu", "--json", "--python", bare, prelude=prelude)
    assert done.stderr == ""
    found = {entry["name"]: entry["status"] for entry in json.loads(done.stdout)["checks"]}
    assert (found["torch"], found["all-reduce"], found["versions"]) == ("fail", "skip", "warn")
