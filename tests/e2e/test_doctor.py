"""``nb2ddp doctor``: what it sees of this machine, of a conversion and of Kaggle, and what it says to do."""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.doctor import examination, group, surroundings
from nb2ddp.doctor.machine import Machine, Settings
from nb2ddp.doctor.outcome import ok, skip, warn
from nb2ddp.doctor.script import imports_of, script_fits
from nb2ddp.errors import NotebookError
from nb2ddp.launch.processes import end_processes
from tests.support.doctor import GIB, TORCH, bare, check, doctor, environment, examined, install
from tests.support.limits import LONG

# ---------------------------------------------------------------------------------------------------------
# This machine


@pytest.mark.launch
def test_a_machine_without_gpus_trains_with_gloo() -> None:
    done = doctor("--cpu", "--nproc", 3, "--json")
    report = json.loads(done.stdout)
    found = {entry["name"]: entry for entry in report["checks"]}
    assert list(found) == [each.name for each in examination.CHECKS]
    assert found["torch"]["status"] == "ok"
    assert found["all-reduce"]["status"] == "ok", found
    assert "gloo over 3 processes: the sums are right" in found["all-reduce"]["seen"]
    assert found["GPUs"] == {"name": "GPUs", "status": "skip", "seen": "left out with --cpu", "to_do": ""}
    fails = [entry for entry in report["checks"] if entry["status"] == "fail"]
    assert report["passed"] is not bool(fails)
    assert done.returncode == (1 if fails else 0)
    assert report["nproc"] == 3
    assert "Traceback" not in done.stderr


def running(mark: str) -> list[str]:
    """The processes that carry a mark in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            pass
    return [pid for pid in found if pid != str(os.getpid())]


def site(folder: Path, code: str) -> str:
    """A folder for PYTHONPATH whose code runs at the start of each rank 1."""
    body = "".join(f"    {line}\n" for line in code.splitlines())
    text = f"import os, sys, time\nif os.environ.get('RANK') == '1':\n{body}"
    (folder / "sitecustomize.py").write_text(text)
    return str(folder)


STUCK_IN_THE_ALL_REDUCE = """
clock = time.perf_counter
def stuck():
    if sys._getframe(1).f_code.co_name == "measure":
        time.sleep(1000)
    return clock()
time.perf_counter = stuck
"""


@pytest.mark.launch
def test_a_rank_that_hangs_is_ended_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", site(tmp_path, STUCK_IN_THE_ALL_REDUCE))
    monkeypatch.setenv("NB2DDP_TEST_MARK", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def end_rank_1_first(*args: Any, **options: Any) -> None:
        end_processes(*args, **options)
        for folder in tmp_path.glob("nb2ddp-*"):
            (folder / "rank0.json").write_text(
                json.dumps({"stage": "failed", "error": "Connection closed by peer"})
            )

    monkeypatch.setattr("nb2ddp.doctor.group.end_processes", end_rank_1_first)
    outcome = group.all_reduce(Machine(Settings(cpu=True, timeout=8)))
    check(outcome, "fail", "gloo over 2 processes: nothing came back within 8 seconds; it hung")
    assert running(f"NB2DDP_TEST_MARK={tmp_path}") == []


@pytest.mark.launch
@pytest.mark.parametrize(
    ("code", "seen", "to_do"),
    [
        (
            "os.kill(os.getpid(), 9)",
            "a process failed before torch was imported (ended by SIGKILL, often because",
            "NCCL_DEBUG=INFO",
        ),
        pytest.param(
            *("sys.modules['torch.distributed'] = None", "ModuleNotFoundError", "GLOO_SOCKET_IFNAME"),
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_rank_that_fails_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, seen: str, to_do: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", site(tmp_path, code))
    check(group.all_reduce(Machine(Settings(cpu=True))), "fail", seen, to_do)


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    # A line of nccl-tests on 8 GPUs: 134217728 bytes in 1211.2 us would be algbw 110.81, busbw 193.92.
    assert group.bus_bandwidth(134217728, 1211.2e-6, 2) == pytest.approx(110.81, abs=0.01)
    assert group.bus_bandwidth(134217728, 1211.2e-6, 8) == pytest.approx(110.81 * 1.75, abs=0.01)


DONE = {"stage": "done", "wrong": 0, "bytes": 400, "seconds": 1.0}


def test_the_ranks_are_judged_together() -> None:
    slower = {**DONE, "seconds": 2.0}
    assert group.judge([DONE, slower], "", timed_out=False).seconds == 2.0
    wrong = group.judge([DONE, {**DONE, "wrong": 7}], "", timed_out=False)
    assert (wrong.works, wrong.wrong) == (False, 7)
    behind = group.judge([{"stage": "joined"}, {"stage": "started"}], "", timed_out=True)
    assert (behind.stage, behind.timed_out) == ("started", True)
    failed = [{"stage": "joined"}, {"stage": "failed", "error": "DistBackendError: NCCL error in: x.cpp"}]
    log = "h:1:2 [1] shm.cc:590 NCCL WARN Error: failed to extend /dev/shm/nccl-03v824 to 4194660 bytes\n"
    assert "/dev/shm/nccl-03v824" in group.judge(failed, log, timed_out=False).error
    assert "DistBackendError" in group.judge(failed, "", timed_out=False).error


@pytest.mark.parametrize(
    ("first", "second", "seen", "to_do"),
    [
        (group.Tried("joined", timed_out=True), None, "hung in the all-reduce", "NCCL_DEBUG=INFO"),
        (group.Tried("started", timed_out=True), None, "looked for one another", "/etc/hosts"),
        (group.Tried("", timed_out=True), None, "before torch was imported", "--timeout"),
        (group.Tried("joined", timed_out=True), "works", "with NCCL_P2P_DISABLE=1 it works", "export"),
        (group.Tried("done", wrong=5, bytes=400), "works", "5 of 100 sums are wrong; with NCCL_P2P", "IOMMU"),
        (group.Tried("done", wrong=5, bytes=400), None, "5 of 100 sums are wrong", "NCCL_DEBUG=INFO"),
    ],
)
def test_what_nccl_could_not_do_is_tried_without_p2p(
    monkeypatch: pytest.MonkeyPatch, first: group.Tried, second: str | None, seen: str, to_do: str
) -> None:
    """There is no NCCL here to fail: what is made of its failures."""

    def attempt(machine: Machine, backend: str, more: Mapping[str, str] | None = None) -> group.Tried:
        assert backend == "nccl"
        return group.Tried("done", bytes=4, seconds=1.0) if more and second else first

    monkeypatch.setattr(group, "attempt", attempt)
    check(group.all_reduce(Machine(torch=TORCH)), "fail", seen, to_do)


def test_a_slow_way_between_gpus_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = group.Tried("done", bytes=1 << 27, seconds=0.5)
    monkeypatch.setattr(group, "attempt", lambda *_: tried)
    check(group.all_reduce(Machine(torch=TORCH)), "warn", "0.27 GB/s", "NCCL_DEBUG=INFO")
    monkeypatch.setattr(group, "attempt", lambda *_: replace(tried, seconds=0.05))
    check(group.all_reduce(Machine(torch=TORCH)), "ok", "2.7 GB/s")


def test_a_taken_port_is_told_with_who_took_it() -> None:
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family) as place:
            try:
                place.bind((address, 0))
            except OSError:
                continue  # no IPv6 here
            place.listen()
            port = place.getsockname()[1]
            here = Machine(environ={"MASTER_PORT": str(port)})
            outcome = surroundings.port_free(here)
            check(outcome, "warn", f"port {port} is taken", f"--main_process_port {port + 1}")
            assert f"process {os.getpid()}" in outcome.seen
        check(surroundings.port_free(here), "ok", f"port {port} is free")


@pytest.mark.parametrize("text", ["", "x", "-1", "99999999"])
def test_a_port_that_is_none_is_not_asked_for(text: str) -> None:
    assert "29500" in surroundings.port_free(Machine(environ={"MASTER_PORT": text})).seen


SMALL = """
import sys
from pathlib import Path
from nb2ddp.doctor.machine import Machine
from nb2ddp.doctor.surroundings import disk_free, shared_memory
for outcome in shared_memory(Machine()), disk_free(Machine(environ={"HF_HOME": "/dev/shm/hf"})):
    print(outcome.status, outcome.seen, outcome.to_do, sep="|")
"""


@pytest.mark.parametrize(
    ("mebibytes", "statuses"), [(4, "fail fail"), (64, "warn fail"), (6000, "ok warn"), (20000, "ok ok")]
)
def test_a_small_shared_memory_and_disk(tmp_path: Path, mebibytes: int, statuses: str) -> None:
    mount = f"mount -t tmpfs -o size={mebibytes}m tmpfs /dev/shm"
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "sh", "-c", mount]).returncode:
        pytest.skip("no right to mount a file system")
    if not statuses.endswith("fail") and shutil.disk_usage(tmp_path).free < 10 * GIB:
        pytest.skip("the disk itself is nearly full")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", sys.executable, "-c", SMALL],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    shm, disk = (line.split("|") for line in done.stdout.splitlines())
    assert [shm[0], disk[0]] == statuses.split()
    assert ("--shm-size=1g" in shm[2]) == (shm[0] != "ok")
    assert "/dev/shm/hf/hub" in disk[1]


@pytest.mark.parametrize(
    ("variables", "status", "to_do"),
    [
        ({}, "ok", ""),
        ({"WORLD_SIZE": "2", "MASTER_PORT": "1"}, "warn", "`unset MASTER_PORT WORLD_SIZE`"),
        ({"UNSLOTH_ENABLE_MULTIGPU": "1"}, "warn", "unset UNSLOTH_ENABLE_MULTIGPU"),
        ({"NCCL_P2P_DISABLE": "1"}, "warn", "env -u NCCL_P2P_DISABLE"),
        ({"NCCL_P2P_DISABLE": "0"}, "ok", ""),
    ],
)
def test_variables_that_do_harm(variables: dict[str, str], status: str, to_do: str) -> None:
    check(surroundings.variables_clean(Machine(environ=variables)), status, to_do=to_do)


# ---------------------------------------------------------------------------------------------------------
# The Python that trains


# ---------------------------------------------------------------------------------------------------------
# A conversion


def test_a_script_whose_imports_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: str
) -> None:
    folder, packages = tmp_path / "my ddp", tmp_path / "packages"
    folder.mkdir()
    (folder / "train_ddp.py").write_text(
        "import os, trl.trainer\nfrom beside import x\nfrom here_too import y\nimport absent_one as z\n"
        "try:\n    import absent_two\nexcept ImportError:\n    pass\n"
        "def f():\n    import absent_three\n"
    )
    (folder / "beside.py").touch()
    install(packages, "here-too", "1")
    install(packages, "trl", "1.15.0")
    imports = imports_of(folder)
    _, results = examined(monkeypatch, bare, packages, folder=folder, imports=imports)
    check(results["script"], "fail", "imports absent_one, which", "pip install absent_one")
    (folder / "setup_env.py").touch()
    here, results = examined(monkeypatch, bare, packages, folder=folder, imports=imports)
    check(results["script"], "fail", "", f"has not run yet: `{bare} '{folder}/setup_env.py'`")
    own = replace(here, settings=replace(here.settings, python=sys.executable))
    check(script_fits(own), "fail", "", f"nb2ddp run '{folder}' --setup")
    install(packages, "absent_one", "1")
    _, results = examined(monkeypatch, bare, packages, folder=folder, imports=imports)
    check(results["script"], "ok")


@pytest.mark.parametrize(("version", "status"), [("2026.10.7", "fail"), ("2026.10.8", "ok"), ("own", "ok")])
def test_an_unsloth_that_cannot_shard_the_model(tmp_path: Path, version: str, status: str) -> None:
    folder = tmp_path / "my ddp"
    folder.mkdir()
    here = Machine(
        Settings(folder=folder, python="py"), installed={"unsloth": version}, markers={"python": "3"}
    )
    for script in (
        'x = ddp.init(strategy="fsdp", loads_share=True)',
        'x = ddp.init(seed=3, strategy="fsdp")',
    ):
        (folder / "train_ddp.py").write_text(script)
        seen, to_do = (
            ("", "")
            if status == "ok"
            else (
                f"shard the model, which unsloth {version} cannot",
                "`py -m pip install --upgrade 'unsloth>=2026.10.8' unsloth_zoo`",
            )
        )
        check(script_fits(here), status, seen, to_do)
    (folder / "train_ddp.py").write_text("x = ddp.init(seed=3)")
    check(script_fits(here), "ok")


def test_a_folder_without_a_script_is_a_sentence(tmp_path: Path) -> None:
    done = doctor(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"nb2ddp: {tmp_path} holds no train_ddp.py; `nb2ddp convert` makes one.\n"
    (tmp_path / "train_ddp.py").write_text("def (")
    with pytest.raises(NotebookError, match="not Python"):
        imports_of(tmp_path)


@pytest.mark.parametrize("arguments", [["nowhere"], ["a.ipynb"], ["--nproc", "0"], ["--timeout", "x"]])
def test_a_wrong_command_line(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "a.ipynb").touch()
    done = doctor(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""


# ---------------------------------------------------------------------------------------------------------
# Kaggle

SECRET = "0123456789abcdef0123456789abcdef"

CREDENTIALS = """
from nb2ddp.doctor.machine import Machine
from nb2ddp.doctor.surroundings import kaggle_credentials
from tests.support.doctor import GIB, TORCH, bare, check, doctor, environment, examined, install
outcome = kaggle_credentials(Machine())
print(outcome.status, outcome.seen, outcome.to_do, sep="|")
"""


@pytest.mark.parametrize(
    ("variables", "files", "status", "seen"),
    [
        ({}, {}, "warn", "no credentials"),
        ({"KAGGLE_API_TOKEN": f"KGAT_{SECRET}"}, {}, "ok", "the variable KAGGLE_API_TOKEN"),
        ({"KAGGLE_USERNAME": "me", "KAGGLE_KEY": SECRET}, {}, "ok", "KAGGLE_USERNAME and KAGGLE_KEY"),
        ({"KAGGLE_USERNAME": "me"}, {}, "warn", "no credentials"),
        ({}, {"access_token": f"KGAT_{SECRET}"}, "ok", "~/.kaggle/access_token"),
        ({}, {"kaggle.json": json.dumps({"username": "me", "key": SECRET})}, "ok", "/.kaggle/kaggle.json"),
        ({}, {"kaggle.json": "{"}, "warn", "no credentials"),
        ({}, {"credentials.json": json.dumps({"refresh_token": SECRET})}, "ok", "credentials.json"),
    ],
)
def test_kaggle_credentials_are_found_and_not_shown(
    tmp_path: Path, variables: dict[str, str], files: dict[str, str], status: str, seen: str
) -> None:
    (tmp_path / ".kaggle").mkdir()
    for name, text in files.items():
        (tmp_path / ".kaggle" / name).write_text(text)
        (tmp_path / ".kaggle" / name).chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as net:
        proxy = f"http://127.0.0.1:{net.getsockname()[1]}"
        env = {key: value for key, value in environment().items() if not key.startswith("KAGGLE_")}
        env |= {"HOME": str(tmp_path), "http_proxy": proxy, "https_proxy": proxy, "no_proxy": "", **variables}
        done = subprocess.run(
            [sys.executable, "-c", CREDENTIALS], env=env, capture_output=True, text=True, timeout=LONG
        )
        net.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody has called
            net.accept()
    assert done.returncode == 0, done.stderr
    found, *words = done.stdout.strip().split("|")
    assert found == status
    assert seen in words[0]
    assert bool(words[1]) == (status == "warn")
    assert SECRET not in done.stdout + done.stderr


# ---------------------------------------------------------------------------------------------------------
# Telling


def test_what_was_skipped_for_one_reason_is_one_line() -> None:
    results = [("a", skip("x")), ("b", skip("x")), ("c", ok("y")), ("d", skip("x")), ("e", skip("z"))]
    told = list(examination.grouped(results))
    assert told == [("a, b", skip("x")), ("c", ok("y")), ("d", skip("x")), ("e", skip("z"))]


def test_the_text_says_the_same_as_the_json(bare: str) -> None:
    text = doctor("--cpu", "--python", bare, MASTER_PORT="1")
    report = json.loads(doctor("--cpu", "--python", bare, "--json", MASTER_PORT="1").stdout)
    assert text.returncode == 1
    rest = text.stdout
    for entry in report["checks"]:
        if entry["status"] != "skip" and entry["name"] != "disk":  # whose free space changes
            assert f"{entry['status'].ljust(4)}  {entry['seen']}\n" in rest
        assert not entry["to_do"] or f"      -> {entry['to_do']}\n" in rest
    fails = sum(entry["status"] == "fail" for entry in report["checks"])
    assert f"{fails} failure" in text.stdout.splitlines()[-1]
    assert report["passed"] is False


def test_the_verdict_counts() -> None:
    assert examination.verdict([ok("x"), skip("y")]) == "All is well."
    assert examination.verdict([ok("x"), warn("y", "z")]) == "Nothing fails, 1 warning."
