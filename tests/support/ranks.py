"""Run scripts on several ranks that a preloaded process forks: small ones take about half a second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.support import ROOT
from tests.support.runtime_module import module_folder

# Transformers imports these wherever they are installed, and no script of these tests needs them: a third of the CPU
# time of a preloaded process, and of one that is launched.
WITHOUT = {"NB2DDP_WITHOUT": "bitsandbytes sklearn torchao"}


@dataclass(frozen=True)
class Rank:
    """What one rank left behind."""

    code: int
    seconds: float
    out: str
    err: str
    notes: dict[str, Any]
    history: list[dict[str, Any]]  # each call of note()


@dataclass(frozen=True)
class Ended:
    """A run that has ended."""

    folder: Path
    ranks: list[Rank]
    hung: bool

    @property
    def codes(self) -> list[int]:
        return [rank.code for rank in self.ranks]

    @property
    def notes(self) -> list[dict[str, Any]]:
        return [rank.notes for rank in self.ranks]

    @property
    def text(self) -> str:
        """What all ranks printed, for a failed assertion."""
        parts = (f"-- rank {n}: {r.code}\n{r.out}{r.err}" for n, r in enumerate(self.ranks))
        return "\n".join(parts)


class RankServer:
    """The preloaded process, and the jobs that it has under way."""

    def __init__(
        self,
        modules: Sequence[str] = ("accelerate", "numpy"),
        *,
        python: Path = Path(sys.executable),
        variables: Mapping[str, str] = MappingProxyType({}),
        cwd: Path = ROOT,
    ) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
            environment.pop(name, None)
        environment |= {
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(ROOT),
            "GLOO_SOCKET_IFNAME": "lo",
            **WITHOUT,
            **variables,
        }
        self.process = subprocess.Popen(
            [python, "-m", "tests.support.rank_server", *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=cwd,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        self.waiting: dict[int, Future[Any]] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = json.loads(line)
            self.waiting.pop(answer["id"]).set_result(answer["attempts"])

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()

    def start(self, folder: Path, script: str, ranks: int = 2, **options: Any) -> Future[Any]:
        """Start a script: on ``ranks`` ranks, or in one plain process when ``ranks`` is 0."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "script.py").write_text(textwrap.dedent(script))
        job = {
            "id": id(folder) if not self.waiting else max(self.waiting) + 1,
            "folder": str(folder),
            "runtime": str(module_folder()),
            "ranks": ranks,
            "machines": 1,
            "attempts": 1,
            "limit": 40,
            "grace": 15,  # one that waits for the failing rank ends three seconds after it
            "environment": {},
            **options,
        }
        future: Future[Any] = Future()
        self.waiting[job["id"]] = future
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return future

    def attempts(self, folder: Path, script: str, ranks: int = 2, **options: Any) -> list[Ended]:
        """Run a script as often as ``attempts`` says, as torchrun restarts it in the same store."""
        return collect(folder, self.start(folder, script, ranks, **options))

    def run(self, folder: Path, script: str, ranks: int = 2, **options: Any) -> Ended:
        return self.attempts(folder, script, ranks, **options)[0]

    def compare(self, folder: Path, script: str, ranks: int = 2, **options: Any) -> tuple[Ended, Ended]:
        """Run a script in one process and on ``ranks`` ranks, at the same time."""
        one, several = folder / "one", folder / "several"
        jobs = self.start(one, script, 0, **options), self.start(several, script, ranks, **options)
        return collect(one, jobs[0])[0], collect(several, jobs[1])[0]


def collect(folder: Path, job: Future[Any]) -> list[Ended]:
    ended = []
    for attempt, result in enumerate(job.result(300)):
        ranks = []
        for rank in sorted(result["codes"], key=int):
            notes = folder / f"notes-{attempt}-{rank}"
            lines = notes.read_text().splitlines() if notes.exists() else []
            history = [json.loads(line) for line in lines]
            merged = {name: value for values in history for name, value in values.items()}
            out, err = ((folder / f"{name}-{attempt}-{rank}").read_text() for name in ("out", "err"))
            ranks.append(Rank(result["codes"][rank], result["ended"][rank], out, err, merged, history))
        ended.append(Ended(folder, ranks, result["hung"]))
    return ended
