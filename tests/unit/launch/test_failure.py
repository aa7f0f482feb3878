"""Which rank failed first, and what is read of its error.json and its log."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.launch.cell_map import CellMap
from nb2ddp.launch.failure import Failure, describe, first_failure, log_tail, recorded_exception
from nb2ddp.launch.ranks import Rank


def rank(number: int, code: int | None, ended: float, **values: Any) -> Rank:
    return Rank(number, pid=1, code=code, ended=ended, **values)


@pytest.mark.parametrize(
    ("ranks", "first"),
    [
        ([], None),
        ([rank(0, 0, 1.0), rank(1, 0, 2.0)], None),
        ([rank(0, 1, 1.002), rank(1, 7, 1.001)], 1),
        ([rank(0, -15, 2.0), rank(1, 1, 1.0)], 1),
        ([rank(0, 0, 1.0), rank(1, -9, 2.0)], 1),
        ([rank(0, None, math.inf), rank(1, None, 1.0), rank(2, -15, 2.0)], 1),  # 0 still ran, 1 was killed
        ([rank(0, None, math.inf)], None),
        ([rank(0, 1, 1.0), rank(0, 0, 9.0, attempt=1), rank(1, 3, 9.0, attempt=1)], 1),
    ],
)
def test_first_failure(ranks: list[Rank], first: int | None) -> None:
    found = first_failure(ranks)
    assert (found and found.rank) == first


def test_a_rank_fails_when_it_records_its_exception(tmp_path: Path) -> None:
    error_file = tmp_path / "error.json"
    error_file.write_text('{"message": {"message": "ValueError: boom"}}')
    os.utime(error_file, (100.0, 100.0))
    slow_to_end = rank(1, -15, 105.0, error_file=str(error_file))
    assert first_failure([rank(0, 1, 101.0), slow_to_end]) is slow_to_end


def test_a_lost_connection_is_not_blamed(tmp_path: Path) -> None:
    error_file = tmp_path / "error.json"
    error_file.touch()
    os.utime(error_file, (99.997, 99.997))  # file times lag behind by some milliseconds
    killed = rank(1, -9, 100.0)
    assert first_failure([rank(0, 1, 100.1, error_file=str(error_file)), killed]) is killed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"message": {"message": "E: x", "extraInfo": {"py_callstack": "Traceback (..)\\nE: x\\n"}}}',
            ("E: x", "Traceback (..)\nE: x"),
        ),
        (
            '{"message": {"message": "E: x", "extraInfo": {"py_callstack": "NoneType: None\\n"}}}',
            ("E: x", ""),
        ),
        ('{"message": {"message": "E: x"}}', ("E: x", "")),
        ('{"message": "E: x"}', ("E: x", "")),
        ('{"message": {"message": "E: x", "extraInfo": 3}}', (None, "")),
        ("[]", (None, "")),
        ("{}", (None, "")),
        ('{"mess', (None, "")),
        ("", (None, "")),
    ],
)
def test_recorded_exception(tmp_path: Path, text: str, expected: tuple[str | None, str]) -> None:
    path = tmp_path / "error.json"
    path.write_text(text)
    assert recorded_exception(str(path)) == expected


def test_nothing_recorded(tmp_path: Path) -> None:
    assert recorded_exception(str(tmp_path / "error.json")) == (None, "")
    assert recorded_exception("") == (None, "")


def test_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "rank1.log"
    assert log_tail(log) == ""
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    assert log_tail(log).splitlines() == [f"line {number}" for number in range(70, 100)]


@pytest.mark.parametrize("prefix", ["", "[rank1]: "])
def test_tail_reaches_back_to_the_last_traceback(tmp_path: Path, prefix: str) -> None:
    log = tmp_path / "rank1.log"
    trace = f"{prefix}Traceback (most recent call last)"
    lines = [f"{trace}: an old one", *["x"] * 9, f"{trace}:", *["  frame"] * 50, "ValueError: boom"]
    log.write_text("\n".join(lines) + "\n")
    assert log_tail(log).splitlines() == lines[10:]


def test_tail_of_a_progress_bar(tmp_path: Path) -> None:
    log = tmp_path / "rank1.log"
    log.write_bytes(b"start\n 1%\r 2%\r100%\ndone\r\n\xff\n")
    assert log_tail(log).splitlines() == ["start", "100%", "done", "\ufffd"]


def test_tail_of_a_huge_log(tmp_path: Path) -> None:
    log = tmp_path / "rank1.log"
    log.write_bytes(b"\r50%" * 100_000 + b"\nlast\n")
    assert log_tail(log).splitlines() == ["50%", "last"]


def recorded(folder: Path, number: int, words: str, at: float) -> str:
    """An error.json that a rank left at a time; its path."""
    path = folder / f"error{number}.json"
    path.write_text(json.dumps({"message": {"message": words}}))
    os.utime(path, (at, at))
    return str(path)


@pytest.mark.parametrize(
    "words",
    [
        "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [1.2.3.4]:3",
        "RuntimeError: Connection reset by peer",
        "DistBackendError: NCCL error: ncclRemoteError: A call failed possibly due to a network error",
        "DistBackendError: NCCL error in: x, remote process exited or there was a network error",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//barrier",
        "RuntimeError: Rank 1 failed to pass monitoredBarrier in 1000 ms",
        "RuntimeError: [Rank 0]: Socket Timeout",
        "RuntimeError: rank 1 has ended while this rank waited for it",
        "RuntimeError: torchrun's store is gone, while rank 0 waits for rank 1 at x",
        "RuntimeError: rank 1 raised KeyError at train_ddp.py, line 51 (cell 4), while rank 0 waits for it at x",
        "rank 1 (step 3) raised KeyError at train_ddp.py, line 51 (cell 4), while rank 0 (step 3) waits at x",
    ],
)
@pytest.mark.parametrize("cause", [-signal.SIGKILL, -signal.SIGSEGV, 3])
def test_a_consequence_never_outranks_the_cause(tmp_path: Path, words: str, cause: int) -> None:
    lost = rank(0, 1, 100.0, error_file=recorded(tmp_path, 0, words, 99.0))
    ended = rank(2, -signal.SIGTERM, 98.0)
    first = rank(1, cause, 105.0)
    assert first_failure([lost, first, ended]) is first
    assert first_failure([lost, ended]) is ended, "torchrun ends nobody before the first failure"
    assert first_failure([lost, rank(2, -signal.SIGTERM, 100.5)]) is lost, "SIGTERM is torchrun's"


@pytest.mark.parametrize(
    "words",
    [
        "ValueError: boom",
        "torch.OutOfMemoryError: CUDA out of memory",
        "AssertionError: the reset of the rank",
        "FileNotFoundError: peer.json",
    ],
)
def test_an_error_of_its_own_is_a_cause(tmp_path: Path, words: str) -> None:
    own = rank(0, 1, 100.0, error_file=recorded(tmp_path, 0, words, 99.0))
    assert first_failure([own, rank(1, -signal.SIGKILL, 105.0)]) is own, "it came first"


def test_a_log_says_that_a_connection_was_lost(tmp_path: Path) -> None:
    """Without error.json, as in scripts that nb2ddp did not make."""
    log = tmp_path / "rank1.log"
    log.write_text("Traceback (most recent call last):\n  ...\nRuntimeError: Connection reset by peer\n")
    assert first_failure([rank(0, 5, 100.0), rank(1, 1, 99.0, log=log)]).rank == 0  # type: ignore[union-attr]


def test_who_the_launcher_has_killed_is_no_cause(tmp_path: Path) -> None:
    lost = rank(0, 1, 100.0, error_file=recorded(tmp_path, 0, "Connection closed by peer", 99.0))
    killed = rank(1, None, 110.1)
    assert first_failure([lost, killed], killed=110.0) is lost
    assert first_failure([lost, killed]) is killed


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("OutOfMemoryError: CUDA out of memory. Tried", "halve per_device_train_batch_size"),
        ("ModuleNotFoundError: No module named 'x'", "--setup"),
        ("ModuleNotFoundError: No module named 'kaggle_secrets'", "read os.environ['NAME']"),
        ("ModuleNotFoundError: No module named 'google.colab'", "read os.environ['NAME']"),
        (
            "RuntimeError: Expected to mark a variable ready only once",
            "freeze parameters that the step does not use",
        ),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 9. GiB", "each rank holds"),
        ("RuntimeError: DefaultCPUAllocator: can't allocate memory", "each rank holds"),
        ("ValueError: boom", "fix the notebook"),
    ],
)
def test_what_to_do(tmp_path: Path, words: str, advice: str) -> None:
    (tmp_path / "setup_env.py").touch()
    failed = rank(0, 1, 1.0, error_file=recorded(tmp_path, 0, words, 1.0))
    failure = describe([failed], CellMap(tmp_path / "train_ddp.py"), alone=True)
    assert failure is not None
    assert advice in failure.advice
    assert failure.headline == f"the script failed (exit code 1): {words}"


def test_the_rank_that_ends_a_hung_run_is_not_blamed(tmp_path: Path) -> None:
    """Its sentence names the rank that hangs, which has not failed and may have to be killed."""
    error_file = tmp_path / "error.json"
    sentence = "the run was ended: rank 1 (step 3) does not answer since 46 s; it was at train_ddp.py, line 3 (cell 4)"
    error_file.write_text(json.dumps({"message": {"message": f"RuntimeError: {sentence}"}}))
    os.utime(error_file, (99.0, 99.0))
    ranks = [rank(0, 1, 100.1, error_file=str(error_file)), rank(1, -9, 100.0)]
    failure = describe(ranks, CellMap(tmp_path / "train_ddp.py"), alone=False)
    assert failure is not None
    assert failure.headline == sentence
    assert "fix" not in failure.advice


def told(folder: Path, *ranks: Rank) -> Failure:
    """What is told of these ranks; rank 0 writes to the console."""
    for member in ranks:
        member.log = folder / f"rank{member.rank}.log" if member.rank else None
    found = describe(ranks, CellMap(folder / "train_ddp.py"), alone=False)
    assert found is not None
    return found


def test_what_all_ranks_raise_is_told_of_rank_0_whose_traceback_stands_above(tmp_path: Path) -> None:
    ranks = [rank(i, 1, 9.0, error_file=recorded(tmp_path, i, "ValueError: x", 9.0 - i)) for i in range(3)]
    failure = told(tmp_path, *ranks)
    assert failure.rank is ranks[0]
    assert failure.headline == "rank 0 failed, and 2 other ranks alike (exit code 1): ValueError: x"
    ranks[1].error_file = recorded(tmp_path, 1, "KeyError: 1", 1.0)
    assert told(tmp_path, *ranks).headline == "rank 1 failed first (exit code 1): KeyError: 1"


def test_an_exit_that_the_script_asks_for(tmp_path: Path) -> None:
    failure = told(tmp_path, rank(0, 7, 2.0), rank(1, 7, 1.0))
    assert failure.headline == "rank 0 failed, and 1 other rank alike (exit code 7)"
    assert "SystemExit" in failure.advice
    assert told(tmp_path, rank(0, 1, 2.0), rank(1, 1, 1.0)).headline == "rank 1 failed first (exit code 1)"


def test_what_rank_0_says_of_a_lost_connection_is_a_consequence(tmp_path: Path) -> None:
    words = "RuntimeError: Connection reset by peer"
    assert told(
        tmp_path, rank(0, 1, 9.0, error_file=recorded(tmp_path, 0, words, 9.0)), rank(1, -9, 8.0)
    ).lost
    assert told(tmp_path, rank(0, -15, 9.0), rank(1, -9, 8.0)).lost, (
        "torchrun ended it before it could record that"
    )
    own = rank(1, 1, 8.0, error_file=recorded(tmp_path, 1, "ValueError: x", 8.0))
    assert not told(tmp_path, rank(0, -15, 9.0), own).lost, "the runtime shows no traceback then"
    words = "RuntimeError: x"
    assert not told(
        tmp_path, rank(0, 1, 9.0, error_file=recorded(tmp_path, 0, words, 9.0)), rank(1, -9, 8.0)
    ).lost


def test_an_error_without_words_has_no_colon(tmp_path: Path) -> None:
    failed = rank(1, 1, 9.0, error_file=recorded(tmp_path, 1, "MemoryError: ", 9.0))
    assert told(tmp_path, failed).headline == "rank 1 failed first (exit code 1): MemoryError"


def test_no_install_step_is_advised_where_there_is_none(tmp_path: Path) -> None:
    words = "ModuleNotFoundError: No module named 'x'"
    advice = told(tmp_path, rank(0, 1, 1.0, error_file=recorded(tmp_path, 0, words, 1.0))).advice
    assert advice.startswith("install what is missing; modules of your own")
