"""The folder of the logs: one run at a time writes there."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nb2ddp.errors import LaunchError
from nb2ddp.launch.command import sets_rendezvous, takes_several_hosts
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
        with held_logs(logs, patience=0.5, shared=True) as begun:
            begun.append(True)
        with pytest.raises(LaunchError, match="Another run goes on and writes its logs to"):
            held_logs(logs, patience=0.5).__enter__()
        other.kill()
    with held_logs(logs, shared=True):
        pass
    assert not logs.exists(), "nothing was started, and nothing is left"
    with _holder(logs) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(LaunchError, match="Another run goes on"):
            held_logs(logs, patience=0.5, shared=True).__enter__()
        other.kill()


@pytest.mark.parametrize("waiting", [None, "shared"])
def test_a_run_that_waited_for_a_folder_that_is_gone_holds_the_new_one(
    tmp_path: Path, waiting: str | None
) -> None:
    logs = tmp_path / "logs"
    with _holder(logs) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with _holder(logs, waiting) as second:
            assert second.stdout is not None
            _wait_until(lambda: str(logs) in _open_files(second.pid))
            first.communicate(
                "end\n"
            )  # it has started nothing: it removes the folder, which the second has open
            assert second.stdout.readline() == "held\n"
            with pytest.raises(LaunchError, match="Another run goes on"):
                held_logs(logs, patience=0).__enter__()
            second.communicate("end\n")
    with held_logs(logs, patience=0):
        pass


def test_a_folder_that_seems_another_one_each_time_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network's file system may give a folder another inode at each look."""
    monkeypatch.setattr(os.path, "samestat", lambda one, other: False)
    began, used = time.monotonic(), time.process_time()
    with held_logs(tmp_path / "logs", patience=1):
        assert (tmp_path / "logs").is_dir()
    assert time.monotonic() - began < 20
    assert time.process_time() - used < 0.5, "it waits without computing"


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


def _open_files(pid: int) -> set[str]:
    """Return the paths that a process has open, those that are deleted under the name that they had."""
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(descriptor))
    return found


def _wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_run_of_several_hosts_is_known_by_their_number() -> None:
    assert takes_several_hosts(["--nnodes=2", "--rdzv-backend=c10d"])
    assert takes_several_hosts(["--nnodes", "1:4", "--master_addr=node1"])
    assert not takes_several_hosts(["--nnodes=1", "--rdzv-backend=c10d"])
    assert not takes_several_hosts(["--max-restarts=3"])
    assert not takes_several_hosts(["--nnodes"]), "torchrun refuses it"


def test_options_of_a_rendezvous_are_known() -> None:
    assert sets_rendezvous(["--nnodes=2", "--rdzv-backend=c10d"])
    assert sets_rendezvous(["--master_addr=node1"])
    assert not sets_rendezvous(["--max-restarts=3"])
