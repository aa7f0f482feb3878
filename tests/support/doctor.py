"""Running ``nb2ddp doctor`` in tests, and the machines that it is shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

import nb2ddp
from nb2ddp.doctor import examination
from nb2ddp.doctor.machine import Gpu, Machine, Settings, Torch, look
from nb2ddp.doctor.outcome import Outcome, skip
from nb2ddp.launch.command import LAUNCHER_VARIABLES
from tests.support.limits import LONG

ROOT = Path(nb2ddp.__file__).parents[1]
GIB = 1 << 30
T4 = Gpu("Tesla T4", 15 * GIB, (7, 5))
TORCH = Torch("2.11.0+cu128", "12.8", None, ("sm_75", "sm_80", "sm_90"), "2.27.5", (T4, T4))


def doctor(
    *arguments: object, cwd: Path | None = None, prelude: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does; ``prelude`` is Python that runs before it. Without the lines of a long wait."""
    code = f"import sys\n{prelude}\nfrom nb2ddp.cli import main\nmain(['doctor', *sys.argv[1:]])"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    done.stderr = re.sub(r"^nb2ddp: \[\d+:\d\d\] .*\n", "", done.stderr, flags=re.MULTILINE)
    return done


def environment(**more: str) -> dict[str, str]:
    """Ours, without what would change the answers."""
    base = {k: v for k, v in os.environ.items() if k not in {*LAUNCHER_VARIABLES, "CUDA_VISIBLE_DEVICES"}}
    path = os.pathsep.join(filter(None, [str(ROOT), more.pop("PYTHONPATH", ""), base.get("PYTHONPATH")]))
    return {**base, "PYTHONPATH": path, **more}


def check(outcome: Outcome, status: str, seen: str = "", to_do: str = "") -> None:
    """An outcome is as expected, and something that is not well comes with what to do, in one line each."""
    assert outcome.status == status, outcome
    assert seen in outcome.seen
    assert to_do in outcome.to_do
    assert outcome.seen
    assert bool(outcome.to_do) or outcome.status in ("ok", "skip")
    assert not {"\n", "Traceback"} & {*outcome.seen, *outcome.to_do}
    assert "Traceback" not in outcome.seen + outcome.to_do


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python of its own with nothing installed."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    return str(folder / "bin" / "python")


def install(folder: Path, name: str, version: str, *requires: str, module: str | None = None) -> None:
    """What pip leaves of a package: its metadata, and an empty module."""
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {text}" for text in requires]
    (place / "METADATA").write_text("\n".join(lines) + "\n")
    (folder / f"{module or name.replace('-', '_')}.py").touch()


def examined(
    monkeypatch: pytest.MonkeyPatch, python: str, packages: Path | str, **settings: Any
) -> tuple[Machine, dict[str, Outcome]]:
    """What the real probe finds in a Python with these packages, and what is said about it."""
    monkeypatch.setenv("PYTHONPATH", str(packages))
    here = look(Settings(cpu=True, python=python, **settings))
    wanted = {"torch", "versions", "missing packages", "script"}
    results = {
        each.name: skip(reason) if (reason := each.unless(here)) else each.run(here)
        for each in examination.CHECKS
        if each.name in wanted
    }
    for outcome in results.values():
        check(outcome, outcome.status)
    return here, results
