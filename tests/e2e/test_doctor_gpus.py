"""``nb2ddp doctor``: GPUs, their driver and their PyTorch, here and as others have them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.doctor import gpu, machine
from nb2ddp.doctor.machine import Board, Driver, Gpu, Machine, Settings, ask_driver
from nb2ddp.doctor.outcome import ok
from tests.support.doctor import GIB, T4, TORCH, check, doctor

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
        (with_driver(cuda="12.4"), "ok", "it runs torch's CUDA 12.8", ""),
        (with_driver(cuda="13.0"), "ok", "it runs torch's CUDA 12.8", ""),
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
