"""The folder of the logs: one run at a time writes there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp.errors import LaunchError
from nb2ddp.launch.command import takes_several_hosts, torchrun_command
from nb2ddp.launch.ranks import held_logs

HOLDS = """
import sys
from pathlib import Path
from nb2ddp.launch.ranks import held_logs
with held_logs(Path(sys.argv[1]), shared=bool(sys.argv[2:])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_two_runs_do_not_share_a_folder_of_logs(tmp_path: Path) -> None:
    logs = tmp_path / "out" / "logs"
    with _holder(logs) as other:
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


def test_the_hosts_of_one_run_share_a_folder_of_logs_and_no_other_run_does(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with _holder(logs, "shared") as other:
        assert other.stdout is not None
        other.stdout.readline()
        with held_logs(logs, patience=0.5, shared=True):
            pass
        with pytest.raises(LaunchError, match="Another run goes on and writes its logs to"):
            held_logs(logs, patience=0.5).__enter__()
        other.kill()
    with held_logs(logs, shared=True):
        pass
    with _holder(logs) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(LaunchError, match="Another run goes on"):
            held_logs(logs, patience=0.5, shared=True).__enter__()
        other.kill()


def test_where_folders_cannot_be_opened_as_such_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_DIRECTORY")  # as on Windows
    with held_logs(tmp_path / "logs", patience=0):
        assert (tmp_path / "logs").is_dir()


def _holder(logs: Path, shared: str | None = None) -> subprocess.Popen[str]:
    """Start a process that holds a folder until it is sent a line."""
    command = [sys.executable, "-c", HOLDS, str(logs), *([shared] if shared else [])]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_run_of_several_hosts_is_known_by_their_number() -> None:
    assert takes_several_hosts(["--nnodes=2", "--rdzv-backend=c10d"])
    assert takes_several_hosts(["--nnodes", "1:4", "--master_addr=node1"])
    assert not takes_several_hosts(["--nnodes=1", "--rdzv-backend=c10d"])
    assert not takes_several_hosts(["--max-restarts=3"])
    assert not takes_several_hosts(["--nnodes"]), "torchrun refuses it"


def test_options_of_a_rendezvous_are_known() -> None:
    def is_standalone(*options: str) -> bool:
        return "--standalone" in torchrun_command(Path("train.py"), nproc=2, torchrun_options=options)

    assert not is_standalone("--nnodes=2", "--rdzv-backend=c10d")
    assert not is_standalone("--master_addr=node1")
    assert is_standalone("--max-restarts=3")
