"""Check the installed packages against the requirements that they declare."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from nb2ddp.doctor.machine import TRAINING, Machine
from nb2ddp.doctor.outcome import Outcome, command, fail, ok, warn

_BREAKING = {*TRAINING, "torch", "huggingface-hub", "tokenizers", "safetensors"}
"""A wrong version of one of these stops an import, or changes the training; of others, hardly ever."""

_SHOWN = ("unsloth", "unsloth-zoo", "transformers", "trl", "peft", "accelerate")


def nothing_known(machine: Machine) -> str:
    """Return why no version can be judged; empty where one can."""
    return "" if machine.python_version else "the packages of the Python that trains are not known"


def no_training_package(machine: Machine) -> str:
    """Return why there is nothing to judge; empty where there is."""
    return nothing_known(machine) or ("" if machine.requires else "no training package is installed")


def _requirements(machine: Machine) -> Iterator[tuple[str, Requirement]]:
    """Return the requirements of each installed package of TRAINING on this machine, without extras."""
    for name in TRAINING:
        for text in machine.requires.get(name, ()):
            with contextlib.suppress(InvalidRequirement):
                requirement = Requirement(text)
                if requirement.marker is None or requirement.marker.evaluate(
                    {**machine.markers, "extra": ""}
                ):
                    yield name, requirement


def allows(specifier: str, version: str) -> bool:
    """Return whether a version is one of those asked for; one that follows no standard may be."""
    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True


def versions_fit(machine: Machine) -> Outcome:
    """Check whether installed packages contradict what the training packages ask for; pip does not keep watch
    over that once they are installed."""
    here = [f"{name} {machine.installed[name]}" for name in _SHOWN if name in machine.installed]
    if not here:
        return warn(
            "neither transformers nor trl, peft, accelerate or unsloth is installed",
            "`nb2ddp run DIR --setup` installs what the notebook installs; if another Python is to train, "
            "name it with --python",
        )
    asked: dict[str, SpecifierSet] = {}
    wrong: dict[str, list[str]] = {}
    for name, requirement in _requirements(machine):
        package = canonicalize_name(requirement.name)
        asked[package] = asked.get(package, SpecifierSet()) & requirement.specifier
        version = machine.installed.get(package)
        if version is not None and not allows(str(requirement.specifier), version):
            wrong.setdefault(package, []).append(
                f"{name} {machine.installed[name]} asks for {package}{requirement.specifier}"
            )
    if not wrong:
        return ok(f"{', '.join(here)} fit together")
    seen = [
        f"{package} {machine.installed[package]}, but {' and '.join(why)}" for package, why in wrong.items()
    ]
    wanted = [f"{package}{asked[package]}" for package in wrong]
    judge = fail if _BREAKING & wrong.keys() else warn
    return judge("; ".join(seen), command(machine.settings.python, "-m", "pip", "install", *wanted))


def nothing_missing(machine: Machine) -> Outcome:
    """Check that what the training packages require is installed."""
    missing: dict[str, dict[str, None]] = {}
    for name, requirement in _requirements(machine):
        package = canonicalize_name(requirement.name)
        if package not in machine.installed:
            missing.setdefault(package, {})[name] = None
    if not missing:
        return ok("all packages that they ask for are installed")
    seen = ", ".join(f"{package} ({', '.join(names)})" for package, names in missing.items())
    return warn(
        f"asked for (by), and not installed: {seen}",
        "expected after `pip install --no-deps`; if an import of one of them fails, install that one",
    )
