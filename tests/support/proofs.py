"""Judge a script beside its notebook in ranks that are forked: a second or two for each."""

from __future__ import annotations

import atexit
import functools
import json
import time
from collections.abc import Sequence
from pathlib import Path

from nb2ddp.rehearse.runs import Run, Settings
from tests.support.ranks import RankServer

_LIMIT = 60  # seconds for a run


@functools.cache
def _server() -> RankServer:
    """Import once what the programs import; no other harness is in there. The server ends with this session."""
    server = RankServer(
        ("accelerate", "datasets", "transformers.trainer"), variables={"TRITON_INTERPRET": "1"}
    )
    atexit.register(server.close)
    return server


def forked(runs: Sequence[Run], settings: Settings, scratch: Path, title: str) -> None:
    """Make the runs of a rehearsal, as `nb2ddp.rehearse.runs.execute` does, in forked processes."""
    server = _server()
    jobs = []
    for run in runs:
        plan = json.loads((run.notes / "plan.json").read_text())
        run.started = time.time()
        start = functools.partial(server.start, run.folder, "", run.nproc)
        environment = {"ACCELERATE_USE_CPU": "true", "TMPDIR": str(scratch)}
        name = Path(plan["script"]).name
        jobs.append(
            start(rehearsal=str(run.notes), name=name, limit=_LIMIT, grace=2, environment=environment)
        )
    for run, job in zip(runs, jobs, strict=True):
        (ended,) = job.result(_LIMIT + 30)
        (run.folder / "script.py").unlink()
        run.hung = "it still ran" if ended["hung"] else None
        for rank, code in ended["codes"].items():
            note = {"code": code, "time": run.started + ended["ended"][rank]}
            (run.notes / f"exit-{rank}.json").write_text(json.dumps(note))
        run.seconds = time.time() - run.started
