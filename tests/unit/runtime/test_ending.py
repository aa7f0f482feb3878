"""The end of a run: rank 0 goes on alone, and what a failing rank has printed is kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.ranks import Ended
from tests.unit.runtime.conftest import RANK_COUNTS, START

Run = Callable[..., Ended]


@pytest.mark.parametrize("ranks", RANK_COUNTS)
def test_after_the_end_rank_0_is_alone(run: Run, ranks: int) -> None:
    ended = run(
        """
        import os, time
        ddp.init_process_group()
        ddp.finish()
        time.sleep(1)
        with ddp.main_process_only() as is_main:
            note(main=is_main, all=ddp.from_all_ranks(5), rank=os.environ.get("RANK"))
        print("end")
        """,
        ranks,
    )
    assert ended.codes == [0] * ranks, ended.text
    assert ended.notes == [{"main": True, "all": [5], "rank": None}] + [{}] * (ranks - 1)
    assert ended.ranks[0].out == "end\n"


def test_rank_0_alone_prints_whatever_it_prints_to(run: Run) -> None:
    ended = run(
        """
        import os, subprocess, sys
        print("a", flush=True)
        sys.__stdout__.write("b\\n")
        sys.__stdout__.flush()
        os.write(1, b"c\\n")
        subprocess.run(["echo", "d"], check=True)
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert [rank.out.split() for rank in ended.ranks] == [["a", "b", "c", "d"], []]


def test_where_the_script_fails_rank_0_runs_what_is_registered_for_its_end(run: Run) -> None:
    ended = run(
        """
        import atexit, pathlib, time
        def end():
            time.sleep(rank == 0)  # the other rank ends before
            pathlib.Path(f"end-{rank}").write_text("end")
        atexit.register(end)
        ddp.init_process_group()
        {}["x"]
        """
    )
    assert ended.codes == [1, 1], ended.text
    assert ended.ranks[0].err.count("KeyError: 'x'") == 1, ended.text
    assert [(ended.folder / f"end-{rank}").exists() for rank in range(2)] == [True, False]


def test_what_was_printed_is_kept_when_a_rank_fails(run: Run) -> None:
    ended = run(
        "print('epoch 1, loss 0.5')\nimport sys\nsys.stdout.write('no newline')\n"
        "file = open(f'log-{rank}', 'w')\nfile.write('row')\n{}['x']\n"
    )
    assert ended.codes[0] == 1
    assert ended.ranks[0].out == "epoch 1, loss 0.5\nno newline"
    assert "KeyError: 'x'" in ended.ranks[0].err
    assert (ended.folder / "log-0").read_text() == "row"


def test_a_rank_ends_where_its_error_cannot_be_recorded(run: Run) -> None:
    ended = run(
        "if rank == 1:\n    raise ValueError('the fault')\nddp.init_process_group()\n",
        environment={"TORCHELASTIC_ERROR_FILE": "/nowhere/error.json"},
    )
    assert ended.codes == [1, 1], ended.text
    assert "ValueError: the fault" in ended.ranks[1].err
    assert max(rank.seconds for rank in ended.ranks) < 20


NOT_PLAIN = {
    "words like ours": (
        "ValueError('rank 16 raised the loss above 3, while rank 8 did not')",
        "while rank 8 did not",
    ),
    "attributes like ours": (
        "type('Own', (ValueError,), {'_from_rank': 0, '_end_of_rank': 3})('a full disk')",
        "Own: a full disk",
    ),
    "any attribute": (
        "type('Own', (ValueError,), {'__getattr__': lambda *names: 3})('a full disk')",
        "a full disk",
    ),
    "no text": (
        "type('Own', (RuntimeError,), {'__str__': lambda error: 5})()",
        "Own: <exception str() failed>",
    ),
}


@pytest.mark.parametrize("case", NOT_PLAIN)
def test_an_exception_of_the_notebooks_own_shows_its_traceback(run: Run, case: str) -> None:
    error, says = NOT_PLAIN[case]
    ended = run(f"if rank == 1:\n    raise {error}\nddp.from_all_ranks(1)\n")
    assert ended.codes == [1, 1], ended.text
    assert "Traceback" in ended.ranks[1].err
    assert says in ended.ranks[1].err
    assert "Traceback" not in ended.ranks[0].err


def test_an_error_of_compiled_code_is_placed_in_the_script(run: Run) -> None:
    """Frames that Cython makes know no caller."""
    pytest.importorskip("pyarrow")
    ended = run("import pyarrow\nif rank == 1:\n    pyarrow.memory_map('absent')\nddp.from_all_ranks(1)\n")
    assert ended.codes == [1, 1], ended.text
    assert re.search(r"rank 1 raised FileNotFoundError at script\.py, line \d+", ended.text), ended.text


@pytest.mark.parametrize("waits", ["ddp.from_all_ranks(1)", "torch.distributed.barrier()"])
def test_what_a_rank_raised_before_it_waited_is_shown(run: Run, waits: str) -> None:
    ended = run(
        f"""
        import torch
        ddp.init_process_group()
        if rank == 1:
            raise ValueError("the fault")
        try:
            {{}}["own"]
        finally:
            {waits}
        """
    )
    assert ended.codes == [1, 1], ended.text
    assert "KeyError: 'own'" in ended.ranks[0].err
    assert "ValueError: the fault" in ended.ranks[1].err


def test_another_machine_stays_until_rank_0_has_saved(run: Run) -> None:
    """Torchrun ends a run minutes after the first machine has left it."""
    ended = run(
        """
        import time
        ddp.init_process_group()
        ddp.finish()
        time.sleep(4)
        note(saved=True)
        """,
        machines=2,
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.notes[0]["saved"]
    assert ended.ranks[1].seconds > ended.ranks[0].seconds - 1


@pytest.mark.parametrize("failing", [0, 1])
def test_what_unsloth_compiled_goes_with_a_failed_run_and_what_a_person_named_stays(
    run: Run, tmp_path: Path, failing: int
) -> None:
    ended = run(
        f"""
        import os
        import torch
        if rank == 1:
            os.makedirs(os.path.join(os.environ["UNSLOTH_COMPILE_LOCATION"], "modules"))
        ddp.from_all_ranks(1)
        if rank == {failing}:
            raise ValueError("the fault")
        ddp.from_all_ranks(2)
        """,
        environment={"TMPDIR": str(tmp_path)},
    )
    assert ended.codes == [1, 1], ended.text
    assert not list(tmp_path.glob("unsloth*"))
    named = tmp_path / "named"
    ended = run("import os\nraise ValueError", environment={"UNSLOTH_COMPILE_LOCATION": str(named)})
    named.mkdir()
    assert ended.codes == [1, 1], ended.text
    ended = run("ddp.finish()", environment={"UNSLOTH_COMPILE_LOCATION": str(named)})
    assert ended.codes == [0, 0], ended.text
    assert named.exists()


def test_a_question_at_a_terminal_that_all_ranks_share_ends_the_run(run: Run) -> None:
    """Nobody sees what rank 1 asks, so it is to hear at once that there is no answer."""
    terminal = "import os, time\nos.dup2(os.openpty()[1], 0)\n"
    ended = run("ddp.from_all_ranks(1)\ninput('Go on? ')", start=terminal + START, grace=4)
    assert ended.codes[1] == 1, ended.text
    assert "EOFError" in ended.ranks[1].err
    assert ended.ranks[0].out == "Go on? "
    assert max(rank.seconds for rank in ended.ranks) < 30


def test_a_rank_that_waited_long_for_the_last_save_may_leave_after_rank_0(run: Run) -> None:
    """What its watchdog has told last is that it waits."""
    ended = run(
        """
        import time
        ddp.init_process_group()
        leave = ddp._leave_group
        def leaves_late():
            leave()
            time.sleep(1.5 * rank)
        ddp._leave_group = leaves_late
        with ddp.main_process_only() as is_main:
            if is_main:
                time.sleep(7)
        ddp.finish()
        """,
        environment={"NB2DDP_PATIENCE": "3"},
    )
    assert ended.codes == [0, 0], ended.text
