"""Run all checks in order, and report their outcomes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nb2ddp.doctor import gpu, group, script, surroundings, versions
from nb2ddp.doctor.machine import Machine
from nb2ddp.doctor.outcome import Outcome, counted, skip


@dataclass(frozen=True)
class Check:
    """One check. ``unless`` returns why there is nothing to check on a machine; empty where there is."""

    name: str
    run: Callable[[Machine], Outcome]
    unless: Callable[[Machine], str] = lambda machine: ""


CHECKS = (
    Check("torch", gpu.torch_imports),
    Check("GPUs", gpu.gpus_alike, gpu.not_on_gpus),
    Check("hidden GPUs", gpu.none_hidden, gpu.without_gpus),
    Check("driver", gpu.driver_fits, gpu.without_gpus),
    Check("GPU code", gpu.code_for_gpus, gpu.without_gpus),
    Check("GPU memory", gpu.gpus_free, gpu.without_gpus),
    Check("NCCL", gpu.nccl_there, gpu.without_gpus),
    Check("all-reduce", group.all_reduce, group.nothing_to_reduce),
    Check("variables", surroundings.variables_clean),
    Check("port", surroundings.port_free),
    Check("shared memory", surroundings.shared_memory),
    Check("disk", surroundings.disk_free),
    Check("versions", versions.versions_fit, versions.nothing_known),
    Check("missing packages", versions.nothing_missing, versions.no_training_package),
    Check("script", script.script_fits),
    Check("Kaggle", surroundings.kaggle_credentials),
)
"""In the order in which they are shown: what the others stand on comes first."""


def examine(
    machine: Machine, begun: Callable[[str], None] = lambda name: None
) -> Iterator[tuple[str, Outcome]]:
    """Yield each check's outcome as soon as it is known. ``begun`` is called with a check's name before it runs."""
    for check in CHECKS:
        begun(check.name)
        reason = check.unless(machine)
        yield check.name, skip(reason) if reason else check.run(machine)


def grouped(results: Iterable[tuple[str, Outcome]]) -> Iterator[tuple[str, Outcome]]:
    """Yield the results; neighbours that were skipped for the same reason become one."""

    def kind(result: tuple[str, Outcome]) -> object:
        return result[1] if result[1].status == "skip" else result[0]

    for _, alike in itertools.groupby(results, kind):
        name, outcome = next(alike)
        if outcome.status == "skip":
            name = ", ".join([name, *(other for other, _ in alike)])
        yield name, outcome


def lines(name: str, outcome: Outcome) -> Iterator[str]:
    """Return one result for a terminal, without its status; the second line is what to do."""
    yield f"{name}: {outcome.seen}" if outcome.status == "skip" else outcome.seen
    if outcome.to_do:
        yield f"-> {outcome.to_do}"


def verdict(outcomes: Sequence[Outcome]) -> str:
    """Return the last line of the report."""
    fails = sum(outcome.status == "fail" for outcome in outcomes)
    warnings = sum(outcome.status == "warn" for outcome in outcomes)
    if not fails:
        return f"Nothing fails, {counted(warnings, 'warning')}." if warnings else "All is well."
    return f"{counted(fails, 'failure')}, {counted(warnings, 'warning')}."


def as_json(results: Sequence[tuple[str, Outcome]], machine: Machine) -> dict[str, Any]:
    """Return {"passed", "python", "nproc", "checks": [{"name", "status", "seen", "to_do"}]}."""
    return {
        "passed": all(outcome.status != "fail" for _, outcome in results),
        "python": machine.settings.python,
        "nproc": machine.nproc,
        "checks": [{"name": name, **vars(outcome)} for name, outcome in results],
    }
