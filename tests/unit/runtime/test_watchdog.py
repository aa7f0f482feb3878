"""The watchdog ends no run that only takes its time, and costs next to nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.ranks import Ended

Run = Callable[..., Ended]

STEPS = """
import subprocess, time
import torch
model = ddp.parallelize(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.ones(4, 4)).sum().backward()
    optimizer.step()
def evaluate_with_a_tool():
    subprocess.run(["sleep", "9"])
for number in range(3):
    step()
    if number == 1:
        PAUSE
step()
ddp.check_replicas(model)
note(steps=ddp._run.steps)
ddp.finish()
"""
PAUSES = {
    "a slow step of all ranks": "time.sleep(9)",
    "a rank that is slower than the others": "time.sleep(2 * rank)",
    "a long save": """with ddp.main_process_only() as is_main:
            if is_main:
                time.sleep(9)""",
    "rank 0 prepares for long": """with ddp.main_process_first():
            if rank == 0:
                time.sleep(9)""",
    "rank 0 decides for long": "ddp.from_main_process(lambda: time.sleep(9))",
    "one rank in slow library code": "if rank == 1: evaluate_with_a_tool()",
}
IN_CI = ("a long save", "one rank in slow library code")


@pytest.mark.parametrize(
    "pause",
    [pytest.param(name, marks=() if name in IN_CI else pytest.mark.thorough) for name in PAUSES],
)
def test_a_run_that_takes_its_time_goes_on(run: Run, pause: str) -> None:
    ended = run(STEPS.replace("PAUSE", PAUSES[pause]), environment={"NB2DDP_PATIENCE": "5"})
    assert ended.codes == [0, 0], ended.text
    assert [notes["steps"] for notes in ended.notes] == [4, 4]


def test_a_rank_that_leaves_the_others_waiting_is_named_within_the_patience(run: Run) -> None:
    ended = run(
        STEPS.replace("PAUSE", "if rank == 1: time.sleep(60)"), environment={"NB2DDP_PATIENCE": "5"}, grace=3
    )
    assert 0 not in ended.codes, ended.text
    assert max(rank.seconds for rank in ended.ranks) < 45
    assert "rank 1 (step 2) is at script.py, line" in ended.ranks[0].err, ended.text


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
        import time
        try:
            import a_package_that_is_not_there
        except ImportError:
            if rank == 1:
                time.sleep(60)
            ddp.from_all_ranks(1)
        """,
        environment={"NB2DDP_PATIENCE": "5"},
        grace=3,
    )
    assert 0 not in ended.codes, ended.text
    assert "the ranks went different ways" in ended.text
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
