"""Write what starts a converted script on a cluster, in a folder that is all the cluster needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nb2ddp.ddp_folder import SCRIPT, read, write
from nb2ddp.errors import EmitError
from nb2ddp.targets import TARGETS, Target
from nb2ddp.targets.job import Job, has_trainer


def job_of(folder: Path, **numbers: Any) -> Job:
    """The job of a conversion's folder; ``numbers`` are those of Job.

    Raises FolderError when the folder cannot be read, EmitError for numbers that cannot be, or a script that
    is not Python any more.
    """
    from nb2ddp.source.syntax_check import check

    converted = read(folder)
    try:
        check(converted.script)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise EmitError(f"{folder / SCRIPT} cannot be read as Python: {error}.") from None
    name = converted.source.name if converted.source else folder.name
    return Job(name, converted.script, converted.setup, converted.support, **numbers)


def target_of(name: str, options: Mapping[str, Any]) -> Target:
    """The target ``name`` with those ``options`` that are given (not None, not empty).

    Raises EmitError for an option that belongs to another target, or a value that cannot be.
    """
    given = {option: value for option, value in options.items() if value not in (None, ())}
    known = {field.name for field in dataclasses.fields(TARGETS[name])}
    for option in given.keys() - known:
        places = [
            other for other, kind in TARGETS.items() if option in {f.name for f in dataclasses.fields(kind)}
        ]
        flag = "--module" if option == "modules" else f"--{option.replace('_', '-')}"
        raise EmitError(f"{flag} is an option of --target {' and '.join(places)}, not of {name}.")
    return TARGETS[name](**given)


def emit(job: Job, name: str, target: Target, folder: Path, *, force: bool) -> list[str]:
    """Write the files of ``target`` into ``folder``; returns what to tell the user about them.

    Raises EmitError for a job that cannot run there, OutputError when the folder cannot be written or
    holds something edited since.
    """
    files = target.files(job)
    write(folder, files, {"target": name, "notebook": job.notebook}, force=force)
    notes = []
    if "resume.py" in files and not has_trainer(job.script):
        notes.append("the script trains without a Trainer, so a restart begins anew: it saves no checkpoints")
    if job.world_size == 1:
        notes.append("one process on one machine: nothing is shared out")
    return notes
