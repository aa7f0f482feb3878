"""fetch: what a kernel wrote, through the real kaggle client."""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import importlib.util
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from nb2ddp import errors
from tests.support.kaggle_client import LOG, imported_for_loopback, nb2ddp, server
from tests.support.kaggle_server import KaggleServer

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kaggle") is None, reason="needs the extra [kaggle]")


@pytest.fixture
def output(server: KaggleServer) -> dict[str, bytes]:
    """Five files on three pages."""
    run = {
        "exit_code": 0,
        "phase": "training",
        "error": None,
        "world_size": 2,
        "gpus": ["Tesla T4", "Tesla T4"],
        "peak_memory_mib": [1000, 2000],
        "seconds": {"checks": 1.2, "training": 61.0},
    }
    server.files = {
        "lora/adapter_config.json": b"{}",
        "lora/adapter_model.safetensors": bytes(range(256)) * 4000,
        "outputs/checkpoint-9/adapter_config.json": b"{}",
        "logs/rank0.log": b"step 1\n",
        "run.json": json.dumps(run).encode(),
    }
    server.log = LOG
    return server.files


def test_fetch_brings_all_pages_and_tells_what_there_is(
    server: KaggleServer, output: dict[str, bytes]
) -> None:
    result = nb2ddp("fetch", "ada/tiny-run", "-o", "home")
    assert result.exit_code == 0, result.output
    assert server.asked.count("ListKernelSessionOutput") == 4  # three pages, and the log
    for name, content in output.items():
        assert (Path("home") / name).read_bytes() == content
    assert (Path("home") / "tiny-run.log").read_bytes().decode() == "".join(LOG)
    assert "The adapter is in home/lora.\n" in result.output
    assert "2 processes on Tesla T4, Tesla T4; checks 1 s, training 61 s." in result.output
    assert "1000 MiB, 2000 MiB" in result.output
    assert not list(Path("home").rglob("*partial"))

    served = len(server.served)
    assert nb2ddp("fetch", "ada/tiny-run", "-o", "home").output.count("was here") == len(output)
    assert len(server.served) == served + len(output)  # asked for, and left


def test_a_changed_file_of_the_same_size_is_fetched_again(
    server: KaggleServer, output: dict[str, bytes]
) -> None:
    nb2ddp("fetch", "ada/tiny-run", "-o", "home")
    file = Path("home") / "lora" / "adapter_config.json"
    os.utime(file, (0, 0))
    output["lora/adapter_config.json"] = b"[]"
    nb2ddp("fetch", "ada/tiny-run", "-o", "home")
    assert file.read_bytes() == b"[]"


def test_a_download_that_breaks_off_goes_on(
    server: KaggleServer, output: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    real_sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: real_sleep(min(seconds, 0.01)))
    name = "lora/adapter_model.safetensors"
    server.broken_files = [name]
    assert nb2ddp("fetch", "ada/tiny-run", "-o", "home").exit_code == 0
    assert (Path("home") / name).read_bytes() == output[name]
    parts = [(status, size) for served, status, size in server.served if served == name]
    assert [status for status, _ in parts] == [200, 206]
    assert 512_000 <= parts[1][1] < 600_000, "what had come is kept"

    # and in a later command: the file is complete only then
    (Path("home") / name).unlink()
    server.broken_files = [name] * 6
    result = nb2ddp("fetch", "ada/tiny-run", "-o", "home")
    assert result.exit_code == errors.DownloadError.exit_code
    assert f"{name} could not be fetched" in result.output
    assert not (Path("home") / name).exists(), "a file appears when it is complete"
    assert nb2ddp("fetch", "ada/tiny-run", "-o", "home").exit_code == 0
    assert (Path("home") / name).read_bytes() == output[name]


def test_a_name_that_leads_outside_is_left_out(server: KaggleServer, output: dict[str, bytes]) -> None:
    output["../evil.py"] = b"x"
    result = nb2ddp("fetch", "ada/tiny-run", "-o", "home")
    assert result.exit_code == errors.DownloadError.exit_code
    assert not Path("evil.py").exists()
    assert (Path("home") / "run.json").exists()


def test_the_partial_output_of_a_failed_run(server: KaggleServer, output: dict[str, bytes]) -> None:
    server.states = ["ERROR"]
    run = json.loads(output["run.json"]) | {
        "exit_code": 1,
        "error": "rank 1: OutOfMemoryError",
        "phase": "training",
    }
    output["run.json"] = json.dumps(run).encode()
    del output["lora/adapter_config.json"]
    result = nb2ddp("fetch", "ada/tiny-run")
    assert result.exit_code == errors.KernelError.exit_code
    assert "the last checkpoint is tiny-run_output/outputs/checkpoint-9" in result.output
    assert "failed with exit code 1 in the phase training: rank 1: OutOfMemoryError" in result.output


def test_a_run_that_was_stopped_in_time_says_how_to_go_on(
    server: KaggleServer, output: dict[str, bytes]
) -> None:
    run = json.loads(output["run.json"]) | {"stopped": {"step": 40, "of": 100}}
    output["run.json"] = json.dumps(run).encode()
    result = nb2ddp("fetch", "ada/tiny-run")
    assert result.exit_code == 0
    assert "step 40 of 100: `nb2ddp push --kaggle --resume-from ada/tiny-run` goes on" in result.output


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"merged/model.safetensors": b"x"}, "The model is in tiny-run_output/merged."),
        ({"m/a.gguf": b"x", "other.txt": b""}, "The model is in tiny-run_output/m."),
        ({"other.txt": b""}, "There is no adapter and no model in the output."),
    ],
)
def test_other_outputs(server: KaggleServer, files: dict[str, bytes], words: str) -> None:
    server.files, server.states = files, ["RUNNING"]
    result = nb2ddp("fetch", "ada/tiny-run")
    assert result.exit_code == 0, result.output
    assert words in result.output
    assert "ada/tiny-run is RUNNING: this is what there is so far" in result.output
    assert "There is no run.json" in result.output


def test_a_folder_that_cannot_be_written(server: KaggleServer, output: dict[str, bytes]) -> None:
    Path("home").write_text("a file")
    result = nb2ddp("fetch", "ada/tiny-run", "-o", "home/sweet")
    assert result.exit_code == errors.DownloadError.exit_code
    assert "home/sweet cannot be written" in result.output


def test_waiting_for_the_end_before_fetching(server: KaggleServer, output: dict[str, bytes]) -> None:
    server.states = ["RUNNING", "RUNNING", "COMPLETE"]
    assert nb2ddp("fetch", "ada/tiny-run", "--follow").exit_code == 0
    assert Path("tiny-run_output/run.json").is_file()


def test_no_output_at_all(server: KaggleServer) -> None:
    server.states = ["ERROR"]
    result = nb2ddp("fetch", "ada/tiny-run")
    assert result.exit_code == errors.KernelError.exit_code
    assert "ada/tiny-run is ERROR and has no output" in result.output
