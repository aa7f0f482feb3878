"""nb2ddp as users have it: built, installed into an environment of its own, and no checkout on any path.

What stands in those environments beside it is linked from the environment of the tests, which takes no time.
"""

from __future__ import annotations

import email
import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from tests.support import ROOT
from tests.support.limits import LONG

SITE = Path(sysconfig.get_path("purelib"))


def built(kind: Literal["wheel", "sdist"], folder: Path, source: Path = ROOT) -> Path:
    """Build a distribution of the project into an empty folder."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    done = subprocess.run(command, cwd=source, env=_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (archive,) = (path for path in folder.iterdir() if path.suffix in (".whl", ".gz"))
    return archive


@dataclass(frozen=True)
class Installed:
    """A Python environment into which a wheel was installed."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        (site,) = self.folder.glob("lib/python*/site-packages")
        return site

    def environment(self, **more: str) -> dict[str, str]:
        """What a user's shell has: this environment's programs first, and nothing of the tests."""
        path = os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]])
        return {**_environment(), "PATH": path, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", **more}

    def run(self, *command: object, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, or ``python``, and give it two minutes."""
        program, *arguments = map(str, command)
        return subprocess.run(
            [str(self.folder / "bin" / program), *arguments],
            cwd=cwd,
            env=self.environment(HOME=str(cwd), **more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONG,
        )

    def nb2ddp(self, *arguments: object, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
        return self.run("nb2ddp", *arguments, cwd=cwd, **more)


def _environment() -> dict[str, str]:
    left_out = ("COV", "PYTHON", "VIRTUAL_ENV", "PYTEST")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}


def install(wheel: Path, folder: Path, *, everything: bool) -> Installed:
    """Install the wheel beside all that the tests have, or beside what it asks for without extras alone."""
    venv.create(folder, symlinks=True)
    installed = Installed(folder)
    for name in sorted(_all_here() if everything else _of(_needed(_requirements(wheel)))):
        (installed.site / name).symlink_to(SITE / name)
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps"]
    subprocess.run([*command, "--python", str(installed.python), str(wheel)], check=True)
    return installed


def install_resolved(
    wheel: Path, folder: Path, resolution: Literal["lowest-direct", "highest"], python: str
) -> Installed:
    """Install the wheel beside the lowest or the newest versions of what it asks for, wheels alone.

    Raises LookupError where they are neither in uv's cache nor to be had, or there is no such Python.
    """
    uv = [sys.executable, "-m", "uv"]
    found = subprocess.run([*uv, "venv", "--quiet", "--no-python-downloads", "--python", python, str(folder)])
    if found.returncode:
        raise LookupError(f"there is no Python {python}")
    installed = Installed(folder)
    wanted = [text for text in _requirements(wheel) if "extra ==" not in text]
    command = [*uv, "pip", "install", "--python", str(installed.python), "--only-binary", ":all:"]
    done = subprocess.run([*command, "--resolution", resolution, *wanted], capture_output=True, text=True)
    if done.returncode and re.search("Failed to fetch|dns error|error sending request", done.stderr):
        raise LookupError("the package index cannot be reached")
    assert done.returncode == 0, done.stderr
    subprocess.run([*command, "--quiet", "--offline", "--no-deps", str(wheel)], check=True)
    return installed


def _all_here() -> set[str]:
    return {path.name for path in SITE.iterdir() if "nb2ddp" not in path.name and path.name != "__pycache__"}


def _requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []


def _needed(requirements: Iterable[str]) -> set[str]:
    """The names of the distributions that these need on this machine, with all that those need in turn."""
    found: set[tuple[str, str]] = set()
    left = [(Requirement(text), "") for text in requirements]
    while left:
        requirement, extra = left.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        for wanted in ("", *requirement.extras):
            if (requirement.name, wanted) not in found:
                found.add((requirement.name, wanted))
                left += [(Requirement(text), wanted) for text in _requires(requirement.name)]
    return {name for name, _ in found}


def _requires(name: str) -> list[str]:
    return importlib.metadata.requires(name) or []


def _of(names: Iterable[str]) -> set[str]:
    """The files and folders of these distributions, as they stand in site-packages."""
    files = [file for name in names for file in importlib.metadata.files(name) or ()]
    return {file.parts[0] for file in files} - {"..", "__pycache__"}
