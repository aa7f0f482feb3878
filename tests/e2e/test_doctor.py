"""``nb2ddp doctor``: what it sees of this machine, of broken ones, and what it says to do."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import nb2ddp
from nb2ddp.doctor import examination, gpu, group, machine, surroundings, versions
from nb2ddp.doctor.machine import Board, Driver, Gpu, Machine, Settings, Torch, ask_driver, look
from nb2ddp.doctor.outcome import Outcome, ok, skip, warn
from nb2ddp.doctor.script import imports_of, script_fits
from nb2ddp.errors import NotebookError
from nb2ddp.launch.command import LAUNCHER_VARIABLES

ROOT = Path(nb2ddp.__file__).parents[1]
GIB = 1 << 30


def doctor(
    *arguments: object, cwd: Path | None = None, prelude: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does; ``prelude`` is Python that runs before it."""
    code = f"import sys\n{prelude}\nfrom nb2ddp.cli import main\nmain(['doctor', *sys.argv[1:]])"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=120,
    )


def environment(**more: str) -> dict[str, str]:
    """Ours, without what would change the answers."""
    base = {k: v for k, v in os.environ.items() if k not in {*LAUNCHER_VARIABLES, "CUDA_VISIBLE_DEVICES"}}
    path = os.pathsep.join(filter(None, [str(ROOT), more.pop("PYTHONPATH", ""), base.get("PYTHONPATH")]))
    return {**base, "PYTHONPATH": path, **more}


def check(outcome: Outcome, status: str, seen: str = "", to_do: str = "") -> None:
    """An outcome is as expected, and something that is not well comes with what to do, in one line each."""
    assert outcome.status == status, outcome
    assert seen in outcome.seen
    assert to_do in outcome.to_do
    assert outcome.seen
    assert bool(outcome.to_do) or outcome.status in ("ok", "skip")
    assert not {"\n", "Traceback"} & {*outcome.seen, *outcome.to_do}
    assert "Traceback" not in outcome.seen + outcome.to_do


# ---- this machine -------------------------------------------------------------------------------


@pytest.mark.launch
def test_a_machine_without_gpus_trains_with_gloo() -> None:
    done = doctor("--cpu", "--nproc", 3, "--json")
    report = json.loads(done.stdout)
    found = {entry["name"]: entry for entry in report["checks"]}
    assert list(found) == [each.name for each in examination.CHECKS]
    assert found["torch"]["status"] == "ok"
    assert found["all-reduce"]["status"] == "ok", found
    assert "gloo over 3 processes: the sums are right" in found["all-reduce"]["seen"]
    assert found["GPUs"] == {"name": "GPUs", "status": "skip", "seen": "--cpu", "to_do": ""}
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


T4 = Gpu("Tesla T4", 15 * GIB, (7, 5))
TORCH = Torch("2.11.0+cu128", "12.8", None, ("sm_75", "sm_80", "sm_90"), "2.27.5", (T4, T4))


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


# ---- the Python that trains ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python of its own with nothing installed."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    return str(folder / "bin" / "python")


def install(folder: Path, name: str, version: str, *requires: str, module: str | None = None) -> None:
    """What pip leaves of a package: its metadata, and an empty module."""
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {text}" for text in requires]
    (place / "METADATA").write_text("\n".join(lines) + "\n")
    (folder / f"{module or name.replace('-', '_')}.py").touch()


def examined(
    monkeypatch: pytest.MonkeyPatch, python: str, packages: Path | str, **settings: Any
) -> tuple[Machine, dict[str, Outcome]]:
    """What the real probe finds in a Python with these packages, and what is said about it."""
    monkeypatch.setenv("PYTHONPATH", str(packages))
    here = look(Settings(cpu=True, python=python, **settings))
    wanted = {"torch", "versions", "missing packages", "known faults", "script"}
    results = {
        each.name: skip(reason) if (reason := each.unless(here)) else each.run(here)
        for each in examination.CHECKS
        if each.name in wanted
    }
    for outcome in results.values():
        check(outcome, outcome.status)
    return here, results


def test_packages_that_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: str) -> None:
    install(tmp_path, "unsloth", "2026.10.9", "unsloth_zoo>=2026.10.9", "transformers<=5.17.0,!=5.0.0")
    install(tmp_path, "unsloth_zoo", "2026.10.9", 'mlx==0.1; sys_platform == "win32"', 'x; extra == "more"')
    install(tmp_path, "transformers", "4.56.2", "Torch")
    install(tmp_path, "torch", "2.11.0+cu128")
    _, results = examined(monkeypatch, bare, tmp_path)
    check(results["versions"], "ok", "unsloth 2026.10.9, unsloth-zoo 2026.10.9, transformers 4.56.2 fit")
    check(results["missing packages"], "ok")
    check(results["known faults"], "ok")


def test_packages_that_contradict_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: str
) -> None:
    install(tmp_path, "unsloth", "2026.10.9", "transformers!=5.16.0,<=5.17.0", "trl>=0.18", "certifi>=2")
    install(tmp_path, "trl", "1.15.0", "transformers>=5.1", "accelerate")
    install(tmp_path, "transformers", "5.18.0", f'sys; python_version < "{sys.version_info.major}"')
    install(tmp_path, "certifi", "1.0")
    install(tmp_path / "later", "transformers", "5.17.0")  # behind the other on the path: not the one in use
    here, results = examined(monkeypatch, bare, f"{tmp_path}{os.pathsep}{tmp_path / 'later'}")
    outcome = results["versions"]
    check(
        outcome, "fail", "transformers 5.18.0, but unsloth 2026.10.9 asks for transformers!=5.16.0,<=5.17.0"
    )
    assert "trl" not in outcome.seen.replace("'trl'", "")
    advised = {
        (r := Requirement(text)).name: r.specifier for text in shlex.split(outcome.to_do.strip("`"))[4:]
    }
    assert set(advised) == {"transformers", "certifi"}
    allowed = [v for v in ("5.0.0", "5.1.0", "5.16.0", "5.17.0", "5.18.0") if v in advised["transformers"]]
    assert allowed == ["5.1.0", "5.17.0"]  # what both of them take
    check(results["missing packages"], "warn", "accelerate (trl)", "--no-deps")
    assert here.installed["unsloth"] == "2026.10.9"

    side = replace(here, installed={**here.installed, "transformers": "5.17.0"})
    check(versions.versions_fit(side), "warn", "certifi 1.0, but unsloth", "'certifi>=2'")


@pytest.mark.parametrize(("version", "status"), [("2026.8.12", "warn"), ("2026.9", "ok"), ("odd", "ok")])
def test_versions_that_train_wrong_without_a_word(version: str, status: str) -> None:
    here = Machine(installed={"unsloth": version}, requires={"unsloth": []})
    check(versions.no_known_fault(here), status, to_do="GRPO" if status == "warn" else "")


def test_metadata_that_is_broken_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: str
) -> None:
    install(tmp_path, "trl", "1.15.0", "what is >>> this", "peft>=1", "accelerate>=1", "gone>=1")
    install(tmp_path, "peft", "of-my-own")
    (tmp_path / "half_removed-1.0.dist-info").mkdir()
    (tmp_path / "accelerate-.dist-info").mkdir()
    (tmp_path / "accelerate-.dist-info" / "METADATA").write_text("Name: accelerate\n")
    _, results = examined(monkeypatch, bare, tmp_path)
    check(results["versions"], "ok", "trl 1.15.0")
    check(results["missing packages"], "warn", "gone (trl)")


@pytest.mark.parametrize(
    ("torch", "seen"),
    [
        (None, "No module named 'torch'"),
        ("raise OSError('libcudart.so.13: cannot open shared object file')", "OSError: libcudart.so.13"),
        ("raise RuntimeError()", "RuntimeError"),
        ("import os; os.abort()", "SIGABRT"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import os; os._exit(7)", "exit code 7"),
        ("print('{no JSON'); raise SystemExit(0)", "SystemExit"),
        ("import time; time.sleep(60)", "not done after 2 seconds"),
        ("", "AttributeError"),  # a folder called torch, as `git clone` leaves one
    ],
)
def test_a_broken_torch_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: str, torch: str | None, seen: str
) -> None:
    install(tmp_path, "peft", "0.21.2")
    if torch is not None:
        (tmp_path / "torch.py").write_text(torch)
    _, results = examined(monkeypatch, bare, tmp_path, timeout=2)
    check(results["torch"], "fail", seen, "--timeout" if "sleep" in str(torch) else f"`{bare} -m pip install")
    check(results["versions"], "ok", "peft 0.21.2")  # is known all the same


@pytest.mark.parametrize("name", ["missing", "folder", "no_program"])
def test_a_python_that_is_none_is_a_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "no_program").write_text("#!/bin/false\n")
    (tmp_path / "no_program").chmod(0o755)
    done = doctor("--cpu", "--python", tmp_path / name)
    assert done.returncode == 1
    assert done.stdout.startswith(f"fail  {tmp_path / name} does not work as a Python: ")
    assert "--python" in done.stdout.splitlines()[1]
    assert "Traceback" not in done.stdout + done.stderr


def test_it_runs_where_only_click_and_packaging_are(bare: str) -> None:
    absent = ("libcst", "nbformat", "nbconvert", "IPython", "jinja2", "rich", "torch", "kaggle", "requests")
    prelude = "".join(f"sys.modules[{name!r}] = None\n" for name in absent)
    done = doctor("--cpu", "--json", "--python", bare, prelude=prelude)
    assert done.stderr == ""
    found = {entry["name"]: entry["status"] for entry in json.loads(done.stdout)["checks"]}
    assert (found["torch"], found["all-reduce"], found["versions"]) == ("fail", "skip", "warn")


# ---- GPUs ---------------------------------------------------------------------------------------

L4 = Gpu("NVIDIA L4", 22 * GIB, (8, 9))
BOARDS = (Board("0", "GPU-a", "Tesla T4", 15 * GIB, 3 << 20), Board("1", "GPU-b", "Tesla T4", 15 * GIB, 0))
DRIVER = Driver(True, "570.86", "12.8", BOARDS, BOARDS)
TWO_T4 = Machine(driver=DRIVER, python_version="3.12.3", torch=TORCH)


def with_torch(**changes: Any) -> Machine:
    return replace(TWO_T4, torch=replace(TORCH, **changes))


def with_driver(**changes: Any) -> Machine:
    return replace(TWO_T4, driver=replace(DRIVER, **changes))


NO_CUDA = dict(version="2.11.0+cpu", cuda=None, gpus=(), nccl=None, gpu_failure="AssertionError: no CUDA")


def test_two_good_gpus() -> None:
    check(gpu.torch_imports(TWO_T4), "ok", "torch 2.11.0+cu128, built for CUDA 12.8, in Python 3.12.3")
    assert gpu.gpus_alike(TWO_T4) == ok("2 GPUs, both Tesla T4 (15 GiB)")
    check(gpu.none_hidden(TWO_T4), "ok")
    check(gpu.driver_fits(TWO_T4), "ok", "driver 570.86, for CUDA up to 12.8")
    check(gpu.code_for_gpus(TWO_T4), "ok", "sm_75")
    check(gpu.gpus_free(TWO_T4), "ok")
    check(gpu.nccl_there(TWO_T4), "ok", "NCCL 2.27.5")


@pytest.mark.parametrize(
    ("here", "status", "seen", "to_do"),
    [
        (with_torch(gpus=(T4,) * 4), "ok", "4 GPUs, all Tesla T4 (15 GiB)", ""),
        (with_torch(gpus=(T4, L4)), "warn", "Tesla T4 (15 GiB) and NVIDIA L4 (22 GiB)", "fit into 15 GiB"),
        (with_torch(gpus=(T4, L4, T4)), "warn", "not alike", "CUDA_VISIBLE_DEVICES=0,2 takes"),
        (
            replace(with_torch(gpus=(L4, T4, L4)), environ={"CUDA_VISIBLE_DEVICES": "5, 3,7"}),
            *("warn", "not alike", "CUDA_VISIBLE_DEVICES=5,7 takes"),
        ),
        (with_torch(gpus=(T4, replace(T4, memory=8 * GIB))), "warn", "not alike", "fit into 8 GiB"),
        (replace(with_torch(gpus=(T4, T4, L4)), settings=Settings(nproc=2)), "ok", "3 GPUs", ""),
        (with_torch(gpus=(T4,)), "warn", "1 GPU, Tesla T4", "one GPU"),
        (replace(TWO_T4, settings=Settings(nproc=4)), "fail", "4 processes are wanted", "--nproc 2"),
        (with_torch(gpus=(), gpu_failure="too old"), "fail", "(Tesla T4, Tesla T4): too old", "driver"),
        (with_torch(gpu_failure="no kernel image"), "fail", "no kernel image", ""),
        (
            replace(with_torch(gpus=(), gpu_failure="none"), environ={"CUDA_VISIBLE_DEVICES": "7"}),
            *("fail", "none", "unset CUDA_VISIBLE_DEVICES"),
        ),
        (replace(with_torch(gpus=()), driver=Driver()), "fail", "no GPU is visible", "GPU T4 x2"),
    ],
)
def test_how_many_gpus_and_of_which_kind(here: Machine, status: str, seen: str, to_do: str) -> None:
    check(gpu.gpus_alike(here), status, seen, to_do)


def test_a_torch_without_cuda_beside_gpus() -> None:
    here = with_torch(**NO_CUDA)
    check(gpu.torch_imports(here), "fail", "built for the CPU alone", "for CUDA 12.8 or older")
    check(gpu.nccl_there(here), "fail", "no NCCL", "CUDA build")
    check(gpu.torch_imports(replace(here, driver=Driver())), "ok", "the CPU alone")


@pytest.mark.parametrize(
    ("here", "status", "seen", "to_do"),
    [
        (with_driver(cuda="12.4"), "ok", "of the same major release", ""),
        (with_driver(cuda="13.0"), "ok", "torch brings CUDA 12.8", ""),
        (
            replace(with_torch(cuda="13.0", gpus=()), driver=replace(DRIVER, cuda="12.8")),
            *("fail", "needs CUDA 13.0", "built for CUDA 12.x"),
        ),
        (with_torch(cuda="13.0"), "ok", "compatibility package", ""),
        (with_driver(cuda=""), "ok", "(unknown)", ""),
        (with_torch(cuda=None), "ok", "driver 570.86", ""),
        (replace(TWO_T4, driver=Driver()), "skip", "no nvidia-smi", ""),
        (
            replace(TWO_T4, driver=Driver(True, failure="Driver/library version mismatch")),
            *("fail", "version mismatch", "start the machine anew"),
        ),
    ],
)
def test_driver_and_cuda(here: Machine, status: str, seen: str, to_do: str) -> None:
    check(gpu.driver_fits(here), status, seen, to_do)


@pytest.mark.parametrize(
    ("capability", "architectures", "status"),
    [
        ((7, 5), ("sm_75",), "ok"),
        ((8, 6), ("sm_80",), "ok"),  # a later minor one
        ((8, 0), ("sm_86",), "fail"),
        ((9, 0), ("sm_80", "sm_86"), "fail"),
        ((9, 0), ("sm_80", "compute_80"), "ok"),  # compiled when it is loaded
        ((6, 0), ("sm_75", "compute_75"), "fail"),  # a P100 on Kaggle
        ((6, 0), ("sm_60",), "warn"),  # has code, and no Triton
        ((9, 0), ("sm_90a",), "ok"),
        ((12, 0), ("sm_100a",), "fail"),
        ((12, 1), ("sm_90", "sm_120"), "ok"),
        ((7, 5), (), "skip"),
    ],
)
def test_code_for_a_capability(
    capability: tuple[int, int], architectures: tuple[str, ...], status: str
) -> None:
    here = with_torch(gpus=(replace(T4, capability=capability),), architectures=architectures)
    check(gpu.code_for_gpus(here), status, to_do="install a torch" if status == "fail" else "")


def fake_smi(
    folder: Path, rows: str, header: str = "", processes: str = "", more: str = ""
) -> dict[str, str]:
    """A PATH with an ``nvidia-smi`` that says this, for there is no GPU here to ask."""
    program = folder / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\n{more}\ncase $1 in\n*gpu=*) cat <<'E'\n{rows}\nE\n;;\n"
        f"*apps=*) cat <<'E'\n{processes}\nE\n;;\n*) cat <<'E'\n{header}\nE\nesac\n"
    )
    program.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


T4_AND_L4 = """\
0, GPU-aaa, Tesla T4, 15360, 2100, 550.54.15
1, GPU-bbb, NVIDIA L4, 23034, 3, 550.54.15
2, GPU-ccc, Tesla T4, 15360, [N/A], 550.54.15"""
HEADER = "| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4     |"
NEW_HEADER = "| NVIDIA-SMI 610.43.02   KMD Version: 610.43.02   CUDA UMD Version: 13.3     |"


def test_what_nvidia_smi_says(tmp_path: Path) -> None:
    path = fake_smi(tmp_path, T4_AND_L4, HEADER, "GPU-aaa, 4242, /usr/bin/python3")
    driver = ask_driver(path)
    assert (driver.version, driver.cuda) == ("550.54.15", "12.4")
    assert [board.name for board in driver.boards] == ["Tesla T4", "NVIDIA L4", "Tesla T4"]
    assert driver.visible == driver.boards
    check(
        gpu.gpus_free(replace(TWO_T4, driver=driver)),
        *("warn", "GPU 0: 2 GiB of 15 GiB (python3, process 4242)", "kill"),
    )
    assert ask_driver(fake_smi(tmp_path, T4_AND_L4, NEW_HEADER)).cuda == "13.3"


@pytest.mark.parametrize(
    ("visible", "nproc", "status", "seen"),
    [
        ("0,1,2", None, "ok", "hides no GPU"),
        ("2,GPU-aaa", None, "warn", "hides 1 of 3 GPUs"),
        ("2,GPU-aaa", 2, "ok", "leaves enough"),
        ("1", 2, "warn", "hides 2 of 3 GPUs"),
        ("", None, "warn", "hides 3 of 3 GPUs"),
    ],
)
def test_gpus_that_a_variable_hides(
    tmp_path: Path, visible: str, nproc: int | None, status: str, seen: str
) -> None:
    environ = {**fake_smi(tmp_path, T4_AND_L4, HEADER), "CUDA_VISIBLE_DEVICES": visible}
    here = Machine(Settings(nproc), environ, ask_driver(environ), torch=TORCH)
    check(gpu.none_hidden(here), status, seen)
    if visible == "1":  # the GPU that others use is none of ours
        check(gpu.gpus_free(here), "ok")


@pytest.mark.parametrize(
    ("more", "failure"),
    [
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "version mismatch"),
        ("exit 9", "exit status 9"),
        ("sleep 30", "not answered"),
    ],
)
def test_an_nvidia_smi_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, failure: str
) -> None:
    monkeypatch.setattr(machine, "SMI_SECONDS", 0.5)
    driver = ask_driver(
        fake_smi(tmp_path, "", more=f"exec 2>&1; {more}" if "sleep" not in more else f"exec {more}")
    )
    assert failure in driver.failure
    here = replace(with_torch(gpus=()), driver=driver)
    assert not gpu.without_gpus(here)
    check(gpu.driver_fits(here), "fail", failure)


def test_a_machine_whose_driver_is_too_old_for_its_torch(tmp_path: Path) -> None:
    """The real torch, which finds no driver here, beside the words of a machine with GPUs."""
    path = fake_smi(tmp_path, T4_AND_L4, HEADER.replace("12.4", "11.4"))["PATH"]
    done = doctor("--json", PATH=path)
    found = {entry["name"]: entry for entry in json.loads(done.stdout)["checks"]}
    assert done.returncode == 1
    assert found["GPUs"]["status"] == "fail"
    assert "Tesla T4, NVIDIA L4, Tesla T4" in found["GPUs"]["seen"]
    assert found["all-reduce"]["status"] == "skip"
    built_for_cuda = "built for CUDA" in found["torch"]["seen"]
    assert found["driver"]["status"] == ("fail" if built_for_cuda else "ok")
    assert found["GPU memory"]["status"] == "warn"


# ---- a conversion -------------------------------------------------------------------------------


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


# ---- Kaggle -------------------------------------------------------------------------------------

SECRET = "0123456789abcdef0123456789abcdef"
CREDENTIALS = """
from nb2ddp.doctor.machine import Machine
from nb2ddp.doctor.surroundings import kaggle_credentials
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
            [sys.executable, "-c", CREDENTIALS], env=env, capture_output=True, text=True, timeout=60
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


# ---- telling ------------------------------------------------------------------------------------


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
