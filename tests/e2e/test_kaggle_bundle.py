"""The code file of a Kaggle bundle, run as a plain script in folders like Kaggle's."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kaggle_kernel import Kaggle, code, needs_torch, package_index
from tests.support.launches import RECORD_QUICKLY
from tests.support.limits import LONG


@pytest.fixture
def kaggle(tmp_path: Path) -> Iterator[Kaggle]:
    kaggle = Kaggle(tmp_path)
    yield kaggle
    kaggle.source.chmod(0o755)


@pytest.fixture
def index() -> Iterator[str]:
    """The address of a package index that answers."""
    with package_index() as address:
        yield address


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], "no GPU here, 2 needed"),
        (["Tesla P100-PCIE-16GB"], "1 GPU (Tesla P100-PCIE-16GB) here, 2 needed"),
    ],
)
def test_too_few_gpus_stop_the_run_before_anything_else(kaggle: Kaggle, names: list[str], words: str) -> None:
    kaggle.gpus(names)
    code_, output = kaggle.run(code(setup="print('installing')\n"))
    assert code_ == 1
    assert words in output
    assert 'set the accelerator to "GPU T4 x2"' in output
    assert "installing" not in output
    assert os.listdir(kaggle.work) == ["run.json"]
    report = kaggle.report()
    assert words in report.pop("error")
    assert report.pop("seconds").keys() == {"checks"}
    assert report.pop("versions")["python"] == sys.version.split()[0]
    assert report == {
        "exit_code": 1,
        "phase": "checks",
        "world_size": 2,
        "gpus": names,
        "peak_memory_mib": None,
    }


def test_no_internet_stops_the_run_before_the_installs(kaggle: Kaggle) -> None:
    code_, output = kaggle.run(
        code(setup="print('installing')\n").replace("INTERNET_WAIT = 60", "INTERNET_WAIT = 0"),
        NB2DDP_CPU="1",
        PIP_INDEX_URL="http://user:secret@127.0.0.1:9/",
    )
    assert code_ == 1
    assert "the installs need the internet" in output
    assert "installing" not in output
    assert "secret" not in output + json.dumps(kaggle.report())


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import os\nprint(os.environ['HF_TOKEN'])\n", "the script needs HF_TOKEN: attach a private dataset"),
        ("token = client.get_secret('HF_TOKEN')\n", "the script needs HF_TOKEN: attach a private dataset"),
    ],
)
def test_a_missing_token_stops_the_run(kaggle: Kaggle, script: str, words: str) -> None:
    code_, output = kaggle.run(code(script), NB2DDP_CPU="1")
    assert code_ == 1
    assert words in output
    assert words in kaggle.report()["error"]


def test_too_little_disk_stops_the_run(kaggle: Kaggle) -> None:
    code_, output = kaggle.run(code().replace("MIN_FREE_GB = 5", "MIN_FREE_GB = 10**9"), NB2DDP_CPU="1")
    assert code_ == 1
    assert "GB of free disk, at least 1000000000 GB are needed" in output


def test_failing_installs_stop_before_the_training(kaggle: Kaggle, index: str) -> None:
    setup = "import sys\nprint('installing')\nprint('ERROR: No matching x')\nprint('bye')\nsys.exit(3)\n"
    code_, output = kaggle.run(code(setup=setup), NB2DDP_CPU="1", PIP_INDEX_URL=index)
    assert code_ == 1
    assert "installing" in output
    assert "trained\n" not in output.replace("nothing was trained", "")
    report = kaggle.report()
    words = "setup_env.py failed with exit code 3, and nothing was trained: ERROR: No matching x"
    assert report["error"] == words
    assert report["phase"] == "setup"
    assert not (kaggle.work / "logs").exists()


TRAINING = """
import hashlib, os, sys
rank = os.environ["RANK"]
token = hashlib.sha256(os.environ["HF_TOKEN"].encode()).hexdigest()[:8]
print(f"rank {rank} of {os.environ['WORLD_SIZE']} trains with token {token} after {open('installed').read()}")
print(f"rank {rank} warns é", file=sys.stderr)
"""


@pytest.mark.launch
@needs_torch
def test_two_processes_train_after_the_installs(kaggle: Kaggle, index: str) -> None:
    kaggle.gpus(["Tesla T4", "Tesla T4"])
    keys = kaggle.input / "datasets" / "ada" / "keys"
    keys.mkdir(parents=True)
    (keys / "HF_TOKEN.txt").write_text("hf_quite_secret\n")
    (kaggle.work / "train_ddp.py").write_text("my own edits\n")
    setup = "with open('installed', 'a') as file:\n    file.write('one install')\n"
    code_, output = kaggle.run(code(TRAINING, setup=setup), PIP_INDEX_URL=index)
    assert code_ == 0, output
    token = hashlib.sha256(b"hf_quite_secret").hexdigest()[:8]
    assert f"rank 0 of 2 trains with token {token} after one install\n" in output
    assert "rank 0 warns é" in output
    assert "rank 1" not in output
    assert "on Tesla T4, Tesla T4" in output

    rank1 = (kaggle.work / "logs" / "rank1.log").read_text(encoding="utf-8")
    assert f"rank 1 of 2 trains with token {token} after one install\n" in rank1
    assert "rank 1 warns é" in rank1
    assert "rank 0 of 2 trains" in (kaggle.work / "logs" / "rank0.log").read_text(encoding="utf-8")
    assert sorted(os.listdir(kaggle.work / "logs")) == ["rank0.log", "rank1.log"]

    report = kaggle.report()
    assert report["exit_code"] == 0
    assert report["error"] is None
    assert report["world_size"] == 2
    assert report["gpus"] == ["Tesla T4", "Tesla T4"]
    assert report["peak_memory_mib"] == [1000, 2000]
    assert report["seconds"].keys() == {"checks", "setup", "training"}
    assert "torch" in report["versions"]

    assert (kaggle.work / "train_ddp.py").read_text() == TRAINING
    assert (kaggle.work / "train_ddp.py.old").read_text() == "my own edits\n"
    written = "".join(path.read_text() for path in kaggle.work.rglob("*") if path.is_file())
    assert "hf_quite_secret" not in output + written


@pytest.mark.launch
@needs_torch
def test_a_dataset_stands_in_for_secrets_that_no_push_can_attach(kaggle: Kaggle) -> None:
    keys = kaggle.input / "datasets" / "ada" / "keys"
    keys.mkdir(parents=True)
    (keys / "HF_TOKEN").write_text("hf_quite_secret\n")
    script = """
import hashlib
from kaggle_secrets import UserSecretsClient
token = UserSecretsClient().get_secret("HF_TOKEN")
print("has", hashlib.sha256(token.encode()).hexdigest()[:8])
"""
    code_, output = kaggle.run(code(script), NB2DDP_CPU="1")
    assert code_ == 0, output
    assert f"has {hashlib.sha256(b'hf_quite_secret').hexdigest()[:8]}\n" in output
    assert "hf_quite_secret" not in output


@pytest.mark.launch
@needs_torch
@pytest.mark.parametrize(
    ("failing", "recorded"),
    [
        (1, True),
        *(pytest.param(*pair, marks=pytest.mark.thorough) for pair in ((0, False), (0, True), (1, False))),
    ],
)
def test_a_failing_rank_fails_the_run_and_is_shown(kaggle: Kaggle, failing: int, recorded: bool) -> None:
    script = f"""{RECORD_QUICKLY if recorded else ""}
import os, time
if os.environ["RANK"] == "{failing}":
    raise RuntimeError("loss is nan é")
time.sleep(999)
"""
    code_, output = kaggle.run(code(script), NB2DDP_CPU="1")
    assert code_ == 1
    shown = output.partition(f"nb2ddp: rank {failing} failed first:\n")[2]
    assert "Traceback (most recent call last)" in shown
    assert "loss is nan" in shown
    assert "ChildFailedError" not in shown
    report = kaggle.report()
    assert report["exit_code"] == 1
    assert report["phase"] == "training"
    assert report["error"].startswith(f"rank {failing}: RuntimeError: loss is nan")
    assert report["peak_memory_mib"] is None


@pytest.mark.launch
@needs_torch
def test_told_to_do_without_gpus_it_runs_on_the_cpu(kaggle: Kaggle) -> None:
    script = "import os\nprint('on', repr(os.environ['CUDA_VISIBLE_DEVICES']))\n"
    code_, output = kaggle.run(code(script, nproc=1), NB2DDP_CPU="1")
    assert code_ == 0, output
    assert "on ''\n" in output
    assert "nb2ddp: 1 process on the CPU" in output
    assert kaggle.report()["world_size"] == 1


@pytest.mark.launch
@needs_torch
def test_a_run_that_is_told_to_stop_leaves_no_process(kaggle: Kaggle) -> None:
    script = "import os, time\nopen(f'started-{os.getpid()}', 'w').close()\ntime.sleep(999)\n"
    with kaggle.start(code(script), NB2DDP_CPU="1") as process:
        deadline = time.monotonic() + LONG
        while len(started := list(kaggle.work.glob("started-*"))) < 2:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LONG)
    assert process.returncode == 130
    assert kaggle.report()["error"] == "interrupted"
    for path in started:
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.name.partition("-")[2]), 0)
