"""Faults in a kernel on Kaggle: it ends, and run.json names the true cause."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.support.kaggle_kernel import Kaggle, PackageIndex, code, needs_torch
from tests.support.limits import LONG

pytestmark = [pytest.mark.launch, needs_torch]


@pytest.fixture
def kaggle(tmp_path: Path) -> Iterator[Kaggle]:
    kaggle = Kaggle(tmp_path)
    kaggle.environment |= {"NB2DDP_CPU": "1", "TMPDIR": str(tmp_path)}
    yield kaggle
    kaggle.source.chmod(0o755)


@pytest.fixture
def small_disk(kaggle: Kaggle) -> Iterator[Kaggle]:
    """A working folder of 3 MB."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", kaggle.work], check=False)
    if done.returncode:
        pytest.skip("a small disk needs the right to mount one")
    yield kaggle
    subprocess.run(["umount", "--lazy", kaggle.work], check=True)


FILL = """
import os, time
rank = os.environ["RANK"]
if rank == "{rank}":
    with open("big.bin", "wb") as file:
        while True:
            file.write(b"x" * 65536)
            file.flush()
            print("still here " * 1000, flush=True)
time.sleep(999)
"""


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.thorough), 1])
def test_a_full_disk_is_the_cause_that_run_json_names(small_disk: Kaggle, rank: int) -> None:
    text = code(FILL.format(rank=rank)).replace("MIN_FREE_GB = 5", "MIN_FREE_GB = 0")
    code_, _ = small_disk.run(text)
    report = small_disk.report()
    assert code_ == 1
    assert report["phase"] == "training"
    assert report["error"].startswith(f"the disk of {small_disk.work} was full; rank {rank}: OSError")
    assert "No space left on device" in report["error"]


def test_a_disk_that_is_full_from_the_start(small_disk: Kaggle) -> None:
    (small_disk.work / "big.bin").write_bytes(b"x" * (3 * 1024 * 1024))
    code_, output = small_disk.run(code().replace("MIN_FREE_GB = 5", "MIN_FREE_GB = 0"))
    assert code_ == 1
    assert f"{small_disk.work} cannot be written: No space left on device" in output


FLOOD = """
import os, sys
rank = os.environ["RANK"]
print(f"rank {rank} begins")
for line in range(400_000):
    print(f"line {line} of a flood that nobody reads to its end, and which is long")
print(f"rank {rank} ends", flush=True)
"""


@pytest.mark.parametrize(
    "read", [pytest.param(True, marks=pytest.mark.thorough), False], ids=["read", "not read"]
)
def test_a_flood_of_output_fills_no_disk_and_blocks_no_rank(kaggle: Kaggle, read: bool) -> None:
    text = code(FLOOD).replace("LOG_LIMIT = 8_000_000", "LOG_LIMIT = 1_000_000")
    text = text.replace("PRINT_LIMIT = 64_000_000", "PRINT_LIMIT = 2_000_000")
    if read:
        code_, output = kaggle.run(text)
        assert code_ == 0
        assert 2_000_000 < len(output) < 2_300_000
        assert "over 2000000 bytes were printed; the last ones will be in logs/rank0.log" in output
    else:
        with kaggle.start(text) as process:
            deadline = time.monotonic() + LONG
            report = b""
            while b'"exit_code": 0' not in report:
                assert time.monotonic() < deadline
                time.sleep(0.2)
                if (kaggle.work / "run.json").exists():
                    report = (kaggle.work / "run.json").read_bytes()
            assert process.wait(timeout=LONG) == 0, "it ends, although nobody reads"
    for rank in (0, 1):
        log = (kaggle.work / "logs" / f"rank{rank}.log").read_text()
        assert log.startswith(f"rank {rank} begins\n")
        assert log.rstrip().endswith(f"rank {rank} ends")
        assert "bytes left out" in log
        assert len(log) < 2_100_000


def test_a_log_keeps_its_end_where_it_comes_at_once(tmp_path: Path) -> None:
    """A rank's log is read in one piece where the machine is busy; the piece may be all that is kept, and more."""
    text = code("pass")
    text = text[text.index("class Log:") : text.index("def pass_on(")]
    names: dict[str, Any] = {"deque": deque, "suppress": contextlib.suppress, "LOG_LIMIT": 400_000}
    exec(text, names)
    log = names["Log"](tmp_path / "rank1.log")
    log.write(b"begins\n" + b"x" * 1_000_000 + b"\nends\n")
    log.close()
    kept = (tmp_path / "rank1.log").read_bytes()
    assert kept.startswith(b"begins\n")
    assert kept.endswith(b"\nends\n")
    assert len(kept) < 410_000


def test_a_log_loses_nothing_that_comes_while_it_is_emptied(tmp_path: Path) -> None:
    """A rank may write its last lines between the reading of its raw log and the emptying, and then end."""
    text = code("pass")
    parts = [
        text[text.index(begin) : text.index(end)]
        for begin, end in (("class Log:", "def pass_on("), ("def take(", "def train("))
    ]
    names: dict[str, Any] = {"deque": deque, "suppress": contextlib.suppress, "LOG_LIMIT": 400_000}
    exec("import ctypes, os\n" + "".join(parts), names)
    raw = tmp_path / "stdout.log"
    take = names["take"]

    def take_and_write(raw: Path, log: Any) -> None:
        take(raw, log)
        with raw.open("ab") as file:
            file.write(b"\nends\n")

    names["take"] = take_and_write
    log = names["Log"](tmp_path / "rank1.log")
    raw.write_bytes(b"begins\n" + b"x" * 1_000_000)
    names["keep_short"](raw, log)
    assert raw.stat().st_blocks * 512 < 100_000, "it takes no more disk than what came last"
    take(raw, log)
    log.close()
    kept = (tmp_path / "rank1.log").read_bytes()
    assert kept.startswith(b"begins\n")
    assert kept.endswith(b"x\nends\n")


def test_a_reader_that_is_killed_ends_no_training(kaggle: Kaggle) -> None:
    """What streams a kernel's output dies where the disk is full: each print fails from then on."""
    with kaggle.start(code("for step in range(1000):\n    print('step', step, flush=True)\n")) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=LONG) == 0
    report = kaggle.report()
    assert (report["exit_code"], report["error"]) == (0, None)
    assert "step 999" in (kaggle.work / "logs" / "rank1.log").read_text()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("victim", ["agent", pytest.param("rank", marks=pytest.mark.thorough)])
def test_a_process_that_is_killed_is_the_cause(kaggle: Kaggle, victim: str) -> None:
    script = (
        "import os, time\nopen(f'pid-{os.environ[\"RANK\"]}-{os.getpid()}', 'w').close()\ntime.sleep(999)\n"
    )
    with kaggle.start(code(script)) as process:
        deadline = time.monotonic() + LONG
        while len(ranks := sorted(kaggle.work.glob("pid-*"))) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        pids = [int(path.name.rpartition("-")[2]) for path in ranks]
        agent = int(Path(f"/proc/{pids[1]}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(agent if victim == "agent" else pids[1], signal.SIGKILL)
        output, _ = process.communicate(timeout=LONG)
    report = kaggle.report()
    assert process.returncode == report["exit_code"] == (137 if victim == "agent" else 1), output
    said = "torchrun was ended by SIGKILL" if victim == "agent" else "rank 1: "
    assert report["error"].startswith(said)
    assert "SIGKILL" in report["error"], output
    deadline = time.monotonic() + 30  # a killed process takes a moment to end; one that was not sleeps on
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


@pytest.mark.parametrize("kind", ["a folder", "no text", "empty", "nothing to read"])
def test_no_token_where_one_is_expected(kaggle: Kaggle, kind: str) -> None:
    place = place_of_token(kaggle)
    if kind == "a folder":
        place.mkdir()
    elif kind == "nothing to read":
        place.symlink_to("/nowhere")
    else:
        place.write_bytes(b"" if kind == "empty" else b"\xff\xfe\x00\x81")
    code_, output = kaggle.run(code("import os\nprint('token', os.environ['HF_TOKEN'])\n"))
    report = kaggle.report()
    assert (code_, report["phase"]) == (1, "checks")
    assert report["error"].startswith("the script needs HF_TOKEN: attach a private dataset")
    assert "Traceback" not in output


def place_of_token(kaggle: Kaggle) -> Path:
    place = kaggle.input / "datasets" / "ada" / "keys" / "HF_TOKEN"
    place.parent.mkdir(parents=True)
    return place


def test_a_kernel_that_is_killed_leaves_its_phase(kaggle: Kaggle) -> None:
    with kaggle.start(code("import time\nopen('started', 'w').close()\ntime.sleep(999)\n")) as process:
        deadline = time.monotonic() + LONG
        while not (kaggle.work / "started").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        children = subprocess.run(
            ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True
        ).stdout.split()
        process.kill()
        for child in children:  # Kaggle ends all of a session; here they would go on
            os.kill(int(child), signal.SIGTERM)
        process.communicate()
    report = kaggle.report()
    assert report["phase"] == "training"
    assert report["error"] == "the kernel was ended from outside"
    assert report["exit_code"] == 1


def test_the_internet_may_come_late_and_a_token_not_at_all(kaggle: Kaggle) -> None:
    """The script can do without the token."""
    place_of_token(kaggle).mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), PackageIndex, bind_and_activate=False) as server:
        server.server_bind()
        port = server.server_address[1]

        def open_late() -> None:
            time.sleep(3)
            server.server_activate()
            server.serve_forever()

        Thread(target=open_late, daemon=True).start()
        script = "import os\nprint('token', os.environ.get('HF_TOKEN'))\n"
        text = code(script, setup="print('installing')\n")
        code_, output = kaggle.run(text, PIP_INDEX_URL=f"http://127.0.0.1:{port}/simple/")
        server.shutdown()
    assert code_ == 0, output
    assert "installing" in output
    assert "no HF_TOKEN here" in output
    assert "Traceback" not in output


@pytest.mark.parametrize("timeout", [None, 7200])
@pytest.mark.parametrize(
    ("script", "seconds"),
    [
        ("SFTTrainer(model)\n", {None: 42300, 7200: 6300}),
        ("model.push_to_hub('x')\nSFTTrainer(m)\n", {None: 40500, 7200: 5760}),
    ],
)
def test_a_trainer_stops_in_time_by_default(
    script: str, seconds: dict[int | None, int], timeout: int | None
) -> None:
    assert f"TRAIN_FOR = {seconds[timeout]} " in code(script, timeout=timeout)
    assert "TRAIN_FOR" not in code("for x in y: pass\n")


def test_the_clock_starts_with_the_session_and_run_json_can_be_read_at_any_time(kaggle: Kaggle) -> None:
    """Off Kaggle the clock starts with the kernel, whatever the first process of the machine is."""
    text = code(
        "SFTTrainer = print\nSFTTrainer()\nimport os\nprint('until', os.environ['NB2DDP_TRAIN_UNTIL'])\n"
    )
    seen, done = [], threading.Event()

    def look() -> None:
        while not done.wait(0.01):
            path = kaggle.work / "run.json"
            if path.exists() and (text := path.read_text().strip()):
                seen.append(json.loads(text))

    thread = Thread(target=look)
    thread.start()
    before = time.time()
    code_, output = kaggle.run(text)
    done.set()
    thread.join()
    assert code_ == 0, output
    until = float(output.partition("until ")[2].split()[0])
    assert before <= until - 42300 <= time.time()
    assert "training" in {run["phase"] for run in seen}
    assert kaggle.report()["error"] is None
