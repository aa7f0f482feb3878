"""Write what starts a converted script on a cluster, in a folder that is all the cluster needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nb2ddp.ddp_folder import SCRIPT, read, write
from nb2ddp.errors import EmitError, OptionError
from nb2ddp.options import settings_of
from nb2ddp.targets import TARGETS, Target
from nb2ddp.targets.job import RESUME, Job


def job_of(folder: Path, **numbers: Any) -> Job:
    """Return the job of a conversion's folder; ``numbers`` are those of Job.

    Raises FolderError when the folder cannot be read, OptionError for numbers that cannot be, EmitError for a script
    that is not Python any more.
    """
    from nb2ddp.source.syntax_check import NOT_PYTHON, check

    converted = read(folder)
    try:
        check(converted.script)
    except NOT_PYTHON as error:
        raise EmitError(f"{folder / SCRIPT} cannot be read as Python: {error}.") from None
    name = converted.source.name if converted.source else folder.name
    return Job(name, converted.script, converted.setup, converted.support, **numbers)


def target_of(name: str, options: Mapping[str, Any]) -> Target:
    """Return the target ``name`` with those ``options`` that are given (not None, not empty).

    Raises OptionError for an option that belongs to another target, or a value that cannot be.
    """
    given = {option: value for option, value in options.items() if value not in (None, ())}
    known = {option.name for option in settings_of(TARGETS[name])}
    for other in given.keys() - known:
        owners = {
            target: option.flag
            for target, kind in TARGETS.items()
            for option in settings_of(kind)
            if option.name == other
        }
        flag = next(iter(owners.values()))
        raise OptionError(f"{flag} is an option of --target {' and '.join(owners)}, not of {name}.")
    return TARGETS[name](**given)


def emit(job: Job, name: str, target: Target, folder: Path, *, force: bool) -> list[str]:
    """Write the files of ``target`` into ``folder``; returns what to tell the user about them.

    Raises EmitError for a job that cannot run there, OutputError when the folder cannot be written or
    holds something edited since.
    """
    files = target.files(job)
    write(folder, files, {"target": name, "notebook": job.notebook}, force=force)
    notes = []
    if name in ("torchrun", "slurm") and RESUME not in files:
        notes.append("the script trains without a Trainer, whose checkpoints alone a run can go on from")
    if job.world_size == 1:
        notes.append("one process on one machine: this is the run of plain python, without DDP")
    return notes
