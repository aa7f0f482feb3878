"""A SLURM cluster of one node on this machine: munged, slurmctld and slurmd, on loopback.

Needs root and Debian's slurm-wlm and munge. Everything lives in one folder and ends with the context.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.limits import LONG

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
# No cgroups, no accounting, quick to schedule.
_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=2
SchedulerParameters=sched_interval=2,bf_interval=2
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=8000
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """The cluster; ``environment`` is what its commands need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._hurried: set[str] = set()

    def command(self, *arguments: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            arguments,
            env=self.environment,
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def state(self, job: str) -> str:
        """For example RUNNING or COMPLETED. A job that was requeued waits seconds, not SLURM's two minutes.

        Not less: slurmd refuses a start in the second in which it ended the same job ("already killed").
        """
        shown = self.command("scontrol", "show", "job", job)
        state = shown.split("JobState=")[1].split()[0]
        if state == "PENDING" and "Reason=BeginTime" in shown and job not in self._hurried:
            self._hurried.add(job)
            self.command("scontrol", "update", f"JobId={job}", "StartTime=now+3")
        return state


@contextlib.contextmanager
def slurm_cluster(folder: Path) -> Iterator[Slurm]:
    """Start the cluster and wait until its node is idle; skips where SLURM is not installed."""
    if os.geteuid() != 0 or not all(map(shutil.which, _PROGRAMS)):
        pytest.skip("needs root, slurm-wlm and munge (`make engines` installs them on Debian)")
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir(parents=True)
    key = folder / "munge" / "key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    slurm = Slurm(folder)
    (folder / "slurm.conf").write_text(
        _CONF.format(host=host, ports=_free_ports(2), folder=folder, cpus=max(2, os.cpu_count() or 1))
    )
    at = key.parent
    daemons: list[list[str]] = [
        ["munged", "--foreground", "--force", f"--key-file={key}"]
        + [f"--{name}={at / name}" for name in ("socket", "pid-file", "log-file", "seed-file")],
        ["slurmctld", "-D", "-i", "-f", str(folder / "slurm.conf")],
        ["slurmd", "-D", "-f", str(folder / "slurm.conf"), "-N", host],
    ]
    with contextlib.ExitStack() as stack:
        for daemon in daemons:
            log = stack.enter_context((folder / f"{daemon[-1].rpartition('/')[2]}.out").open("wb"))
            process = subprocess.Popen(
                daemon, env=slurm.environment, stdout=log, stderr=log, start_new_session=True
            )
            stack.callback(_end, process)
            deadline = time.monotonic() + LONG
            while daemon is daemons[0] and not (at / "socket").exists():
                assert time.monotonic() < deadline, Path(log.name).read_text()
                time.sleep(0.05)
        deadline = time.monotonic() + LONG
        while "idle" not in _answer(slurm):
            assert time.monotonic() < deadline, "\n".join(p.read_text() for p in folder.glob("*.log"))
            time.sleep(0.2)
        yield slurm


def _answer(slurm: Slurm) -> str:
    command = ["sinfo", "--noheader", "--format=%T"]
    return subprocess.run(command, env=slurm.environment, capture_output=True, text=True, check=False).stdout


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for found in sockets:
            found.bind(("127.0.0.1", 0))
        return [found.getsockname()[1] for found in sockets]


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
