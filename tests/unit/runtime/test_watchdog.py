"""The watchdog waits for slow ranks, ends hung ones with the place where they are, and costs next to nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.ranks import Ended, RankServer, collect
from tests.support.slow_and_hung import CALM, HUNG

Run = Callable[..., Ended]

IN_CI = {
    "a sleep in a worker",
    "a wait with a timeout in saving",
    "a debugger's stop",
    "a thread in the background that reads ahead",
    "a worker at an empty queue",
    "an event asked again and again",
    "a lock in saving",
    "a question that nobody can answer",
    "a rank that is stopped",
    "a tool that waits for input",
    "a file that its own process has locked",
    "a signal that a timer sends",
    "a server of its own that never accepts",
}
CASES = {**CALM, **HUNG}


@pytest.fixture(scope="module")
def table(
    request: pytest.FixtureRequest, server: RankServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Ended]:
    """Run all selected cases, ten at a time: they mostly wait."""
    wanted = {
        spec.params["case"]
        for item in request.session.items
        if (spec := getattr(item, "callspec", None)) and "case" in spec.params and item.path == request.path
    }
    names, ended = [name for name in CASES if name in wanted], {}
    for start in range(0, len(names), 10):
        jobs = {}
        for name in names[start : start + 10]:
            folder = tmp_path_factory.mktemp("case")
            patience = "2" if name == "an endless loop" else "5"
            environment = {"SECONDS": "14", "NB2DDP_PATIENCE": patience, "TMPDIR": str(folder)}
            options = {"environment": environment, "limit": 140, "grace": 20}
            jobs[name] = folder, server.start(folder, CASES[name].script, 2, **options)
        ended.update({name: collect(folder, job)[0] for name, (folder, job) in jobs.items()})
    return ended


def processes_in(folder: Path) -> list[str]:
    """Return the processes that are still at work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == folder:
                found.append((process / "cmdline").read_text())
    return found


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=() if name in IN_CI else pytest.mark.thorough) for name in CASES]
)
def test_a_slow_rank_is_waited_for_and_a_hung_one_ended(table: dict[str, Ended], case: str) -> None:
    ended = table[case]
    assert not ended.hung, ended.text
    assert not [path for path in ended.folder.iterdir() if "unsloth" in path.name]
    assert not processes_in(ended.folder)
    if case in CALM:
        assert ended.codes == [0, 0], ended.text
        assert "nb2ddp: ERROR" not in ended.text
        assert ended.notes[0]["steps"] == 12
    else:
        assert any(ended.codes), ended.text
        assert CASES[case].names_the_rank(ended.text), ended.text


@pytest.mark.parametrize("case", ["a wait with a timeout in saving"])
def test_a_line_says_who_waits_for_whom(table: dict[str, Ended], case: str) -> None:
    line = next(line for line in table[case].text.splitlines() if line.startswith("nb2ddp: WAITING"))
    assert "rank 1 (step 12) waits at script.py, line" in line
    assert (
        "for rank 0 (step 12), which waits for a lock at script.py, line 10 (cell 2), in evaluate_and_sa"
        in line
    )
    assert "after 200 s (40 times NB2DDP_PATIENCE)" in line


GPU = """
import ctypes, hashlib, json, os, sys, time
import torch
def gpu(begun, ended):
    \"\"\"Answer as PyTorch's flight recorder does where NCCL is at work.\"\"\"
    of_group = {"last_enqueued_collective": "12", "last_started_collective": str(begun)}
    state = {"pg_status": {"0": {**of_group, "last_completed_collective": str(ended)}}}
    torch._C._distributed_c10d._dump_nccl_trace_json = lambda *given: json.dumps(state).encode()
def synchronize(until="never"):
    \"\"\"Wait as CUDA does: in a call of C, without Python's lock, and with all of a CPU.\"\"\"
    while not os.path.exists(until):
        hashlib.pbkdf2_hmac("sha256", b"", b"", 600_000 if until != "never" else 2**31 - 1)
# ---- cell 2
"""
ON_GPUS = {
    "each in a collective that the other has not entered": (
        "gpu(11 + rank, 10 + rank)\nif rank == 0:\n    synchronize()\nsynchronize()",
        "the ranks went different ways: rank ",
    ),
    "one waits for the other without its GPU": (
        "if rank == 0:\n    gpu(11, 10)\n    synchronize()\nddp.from_all_ranks(1)",
        "the ranks went different ways: rank ",
    ),
    "all in one collective": ("gpu(11, 10)\nsynchronize()", "the ranks wait for one another in vain: rank "),
    "the other has left": (
        "if rank == 1:\n    sys.exit(0)\ngpu(11, 10)\nsynchronize()",
        "rank 1 (step 0) left the script, while rank 0",
    ),
    "the other computes": (
        """
gpu(11 - rank, 10)
if rank == 1:
    start = time.monotonic()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000)
    hashlib.pbkdf2_hmac("sha256", b"", b"", int(24_000_000 / (time.monotonic() - start)))
    open("came", "w").close()
synchronize("came")
gpu(11, 11)
open(f"there {rank}", "w").close()
while not os.path.exists(f"there {1 - rank}"):  # who leaves first is missed
    time.sleep(0.1)
""",
        "",
    ),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.thorough if number in (1, 2, 3) else ())
        for number, case in enumerate(ON_GPUS)
    ],
)
def test_a_wait_for_a_gpu_is_a_wait_though_it_computes(run: Run, case: str) -> None:
    what, says = ON_GPUS[case]
    ended = run(GPU + what, environment={"NB2DDP_PATIENCE": "5"}, limit=140)
    if says:
        assert any(ended.codes), ended.text
        error = next(line for line in ended.text.splitlines() if line.startswith("nb2ddp: ERROR"))
        assert says in error, error
        assert error.count("script.py, line ") == 2 - ("left" in case), error
        assert max(rank.seconds for rank in ended.ranks) < 40
    else:
        assert ended.codes == [0, 0], ended.text
        assert "nb2ddp: ERROR" not in ended.text


def test_ranks_that_wait_for_one_another_are_ended(run: Run) -> None:
    """A rank that waits for a file that rank 0 failed to save, say, while rank 0 has gone on."""
    ended = run(
        "if rank == 1: ddp._wait_for_key('saved', 0, 'a save')\nddp.from_all_ranks(rank)",
        environment={"NB2DDP_PATIENCE": "5"},
        grace=3,
    )
    assert 0 not in ended.codes, ended.text
    assert "the ranks went different ways: rank" in ended.text


def test_an_exception_whose_finally_waits_is_shown_once(run: Run) -> None:
    """Rank 1 waits for rank 0's save before it may end, while rank 0 waits in the training for rank 1."""
    ended = run(
        """
        import torch
        model = ddp.parallelize(torch.nn.Linear(4, 1))
        try:
            for step in range(9):
                if rank == 1 and step == 5:
                    raise ValueError("the fault")
                model(torch.ones(4, 4)).sum().backward()
        finally:
            with ddp.main_process_only() as is_main:
                if is_main:
                    torch.save(model.state_dict(), "model.pt")
        """,
        environment={"NB2DDP_PATIENCE": "5", "TORCHELASTIC_ERROR_FILE": "error.json"},
    )
    assert 0 not in ended.codes, ended.text
    assert "Before that, rank 1 raised ValueError" in ended.text
    assert ended.text.count("Traceback (most recent call last)") == 1
    assert 'raise ValueError("the fault")' in ended.text
    recorded = (ended.folder / "error.json").read_text()
    assert "Before that, rank 1 raised ValueError" in recorded
    assert "ValueError: the fault" in recorded


def test_an_exception_that_all_ranks_handle_parts_none(run: Run) -> None:
    ended = run(
        """
        import threading
        try:
            import a_package_that_is_not_there
        except ImportError:
            if rank == 1:
                threading.Event().wait()
            ddp.from_all_ranks(1)
        """,
        environment={"NB2DDP_PATIENCE": "5"},
        grace=3,
    )
    assert 0 not in ended.codes, ended.text
    assert "rank 1 (step 0) is at script.py, line 9" in ended.text
    assert "Before that" not in ended.text


def test_a_look_of_the_watchdog_costs_less_than_a_thousandth_of_the_time_between_two(run: Run) -> None:
    ended = run(
        """
        import time
        import torch
        model = ddp.parallelize(torch.nn.Linear(4, 1))
        model(torch.ones(4, 4)).sum().backward()
        watchdog = ddp._Watchdog()
        def computed():
            return time.thread_time()
        watchdog._watch()
        start = computed()
        for _ in range(20):
            watchdog._watch()
        note(cost=(computed() - start) / 20, beat=ddp._BEAT)
        ddp.check_replicas(model)
        """
    )
    assert ended.codes == [0, 0], ended.text
    for notes in ended.notes:
        assert notes["cost"] < notes["beat"] / 1000, notes


def test_a_look_that_fails_does_not_end_the_watch(run: Run) -> None:
    ended = run(
        """
        import time
        looks = []
        look = ddp._run.watchdog._look
        def fails_once():
            looks.append(1)
            if len(looks) == 1:
                raise ValueError("in the watchdog")
            return look()
        ddp._run.watchdog._look = fails_once
        deadline = time.monotonic() + 30
        while len(looks) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        note(looks=len(looks) > 1)
        """,
        2,
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.notes == [{"looks": True}] * 2
    assert "Traceback" not in ended.text
