"""The folder of the logs: one run at a time writes there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp.errors import LaunchError
from nb2ddp.launch.command import sets_rendezvous
from nb2ddp.launch.ranks import held_logs

HOLDS = """
import sys, time
from pathlib import Path
from nb2ddp.launch.ranks import held_logs
with held_logs(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(100)
"""


def test_two_runs_do_not_share_a_folder_of_logs(tmp_path: Path) -> None:
    logs = tmp_path / "out" / "logs"
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(logs)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(LaunchError, match="Another run goes on and writes its logs to"):
            held_logs(logs, patience=0.5).__enter__()
        with held_logs(tmp_path / "elsewhere"):
            pass
        other.kill()
    with held_logs(logs):
        pass
    with held_logs(logs):
        pass


def test_machines_of_one_run_may_share_it() -> None:
    assert sets_rendezvous(["--nnodes=2", "--rdzv-backend=c10d"])
    assert sets_rendezvous(["--master_addr=node1"])
    assert not sets_rendezvous(["--max-restarts=3"])
