"""What ranks share outside the model: batches, loops over items, shell lines, sums, turns and random states."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from nb2ddp.conversion.report import split
from nb2ddp.rewriting.findings import Batch
from tests.support.ranks import Ended
from tests.unit.runtime.conftest import RANK_COUNTS

Run = Callable[..., Ended]

# notebook's batch and accumulation, num_generations -> a rank's micro-batch and steps, on 2 and on 3 ranks
BATCHES = [
    ((2, 4, None), (2, 2), (1, 4)),
    ((8, 1, None), (4, 1), (2, 1)),
    ((1, 1, None), (1, 1), (1, 1)),
    ((6, 3, None), (3, 3), (6, 1)),
    ((1, 6, None), (1, 3), (1, 2)),
    ((3, 2, None), (3, 1), (1, 2)),
    ((4, 1, 4), (2, 1), (4, 1)),
    ((1, 4, 8), (8, 2), (2, 4)),
]


@pytest.mark.parametrize("ranks", RANK_COUNTS)
def test_a_batch_is_shared(run: Run, ranks: int) -> None:
    ended = run(
        f"for case in {[case for case, *_ in BATCHES]}:\n    note(got=ddp.share_batch(*case))\n",
        ranks,
    )
    assert not any(ended.codes), ended.text
    for rank in ended.ranks:
        assert [tuple(note["got"]) for note in rank.history] == [row[ranks - 1] for row in BATCHES]
    lines = ended.ranks[0].out.splitlines()
    for (batch, steps, generations), *shares in BATCHES:
        per_rank, accumulated = shares[ranks - 2]
        total = per_rank * accumulated * ranks
        assert lines.pop(0).endswith(f"{ranks} processes = {total} per step")
        wanted = batch * steps if not generations or batch * steps % generations == 0 else generations * steps
        if total != wanted:
            assert f"{wanted} does not divide" in lines.pop(0)
    assert not lines


def test_the_report_of_a_conversion_splits_a_batch_as_the_run_does(run: Run) -> None:
    grid = list(itertools.product(range(1, 9), range(1, 9), (1, 2, 3, 4, 8), range(1, 9)))
    ended = run(
        f"""
        shares = []
        for batch, steps, generations, ddp._run.world_size in {grid}:
            shares.append(ddp.share_batch(batch, steps, generations if generations > 1 else None))
        note(shares=shares)
        ddp._run.world_size = 1
        """,
        0,
    )
    assert ended.codes == [0], ended.text
    reported = [split(Batch(*batch), ranks) for *batch, ranks in grid]  # type: ignore[arg-type]
    assert [tuple(share) for share in ended.notes[0]["shares"]] == reported


@pytest.mark.parametrize("ranks", RANK_COUNTS)
def test_shell_lines_run_once(run: Run, ranks: int) -> None:
    ended = run(
        """
        print("before")
        ddp.shell("echo shell; echo x >> ran; env | grep ^RANK; false")
        ddp.shell("source /dev/null && [[ 1 == 1 ]] && echo bash")
        lines = ddp.shell_output("echo x >> ran; echo one >&2; [[ 1 == 1 ]] && echo two")
        note(lines=lines, there=open("ran").read(), text=lines.n, found=list(lines.grep("w")))
        ddp.write_file("file.py", "text é\\n")
        ddp.write_file("file.py", "more\\n", "a")
        note(file=open("file.py", encoding="utf-8").read())
        note(bare="RANK" in ddp.environment_without_ranks())
        """,
        ranks,
    )
    assert not any(ended.codes), ended.text
    for notes in ended.notes:
        expected = {"lines": ["one", "two"], "there": "x\nx\n", "file": "text é\nmore\n", "bare": False}
        assert notes == {**expected, "text": "one\ntwo", "found": ["two"]}
    assert ended.ranks[0].out == "before\nshell\nbash\n"
    assert not any(rank.out for rank in ended.ranks[1:])


@pytest.mark.parametrize("ranks", [0, *RANK_COUNTS])
def test_all_ranks_change_the_folder_where_rank_0_can(run: Run, ranks: int) -> None:
    ended = run(
        """
        import os
        start = os.getcwd()
        ddp.cd("not there")
        ddp.shell("mkdir -p new/inner")
        ddp.cd("new/inner")
        inner = os.getcwd()
        ddp.cd("..")
        ddp.cd("-")
        note(inner=os.path.relpath(inner, start), back=os.getcwd() == inner)
        ddp.cd("../..")
        os.environ["HOME"] = start
        if ddp._run.rank:  # which alone still sees the folder
            os.path.expanduser = lambda path: start + "/new"
        ddp.cd("gone")
        ddp.cd("~/new") if ddp._run.rank == 0 else ddp.cd("x")
        note(here=os.path.relpath(os.getcwd(), start))
        """,
        ranks,
    )
    assert not any(ended.codes), ended.text
    for notes in ended.notes:
        assert notes == {"inner": "new/inner", "back": True, "here": "new"}
    why = "[Errno 2] No such file or directory: "
    assert ended.ranks[0].out == f"{why}'not there'\n{why}'gone'\n"
    assert not any(rank.out for rank in ended.ranks[1:])


@pytest.mark.parametrize("ranks", [0, *RANK_COUNTS])
def test_a_program_runs_once_and_every_rank_reads_it(run: Run, ranks: int) -> None:
    ended = run(
        """
        import os, subprocess
        start = ddp.shared_process(subprocess.Popen)
        done = start("echo x >> ran; exit 3", shell=True)
        note(code=done.wait(), again=done.returncode, args=done.args)
        print(done)
        read = start(["sh", "-c", "echo x >> ran; read a; echo $a; echo two"], stdin=-1, stdout=-1, text=True)
        read.stdin.write("one\\n")
        read.stdin.close()
        note(lines=[*read.stdout], code=read.wait(), output=start(["echo", "a"], stdout=-1, text=True).communicate())
        with start(["true"]) as ended, ddp.shared_process(os.popen)("wc -l < ran") as lines:
            note(code=ended.wait(), ran=int(lines.read()))
        try:
            start(["no such program"])
        except FileNotFoundError as error:
            note(error=error.filename, like=hasattr(done, "_no"))
        """,
        ranks,
    )
    assert not any(ended.codes), ended.text
    for rank in ended.ranks:
        assert rank.history == [
            {"code": 3, "again": 3, "args": "echo x >> ran; exit 3"},
            {"lines": ["one\n", "two\n"], "code": 0, "output": ["a\n", None]},
            {"code": 0, "ran": 2},
            {"error": "no such program", "like": False},
        ]
    assert ended.ranks[0].out == "<Popen: returncode: 3 args: 'echo x >> ran; exit 3'>\n"


def test_without_a_seed_ranks_take_over_rank_0s_generators(run: Run) -> None:
    draw = (
        "import random, numpy, torch\nimport ddp_support as ddp\nddp.init()\n"
        "note(drawn=[random.random(), numpy.random.rand(), torch.rand(1).item()])\n"
    )
    ended = run(draw, 3, start="")
    again = run(draw, 2, start="")
    assert ended.notes[0] == ended.notes[1] == ended.notes[2], ended.text
    assert ended.notes[0] != again.notes[0]


def test_a_seed_is_the_same_run_after_run(run: Run) -> None:
    draw = "import random, numpy, torch\nnote(drawn=[random.random(), numpy.random.rand(), torch.rand(1).item()])\n"
    assert [*run(draw, 2).notes, *run(draw, 0).notes] == run(draw, 3).notes


def test_one_process_waits_for_nothing(run: Run) -> None:
    ended = run(
        """
        import torch
        with ddp.main_process_only() as is_main, ddp.main_process_first(), ddp.in_turn():
            pass
        model = torch.nn.Linear(1, 1)
        assert ddp.parallelize(model) is model and type(model) is torch.nn.Linear
        note(main=is_main, all=ddp.from_all_ranks(3))
        note(one=ddp.from_main_process(lambda: 4), checked=ddp.check_replicas(model, "result"))
        ddp.finish()
        """,
        0,
    )
    assert ended.codes == [0], ended.text
    assert ended.notes == [{"main": True, "all": [3], "one": 4, "checked": "result"}]


def test_lines_about_the_run_are_not_in_the_notebooks_own_log(run: Run) -> None:
    ended = run(
        """
        import sys, torch
        ddp.init_process_group()
        model = torch.nn.Linear(2, 1)
        ddp.parallelize(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        sys.stdout = open(f"log{rank}.txt", "w")
        model(torch.ones(4, 2)).sum().backward()
        optimizer.step()
        ddp.check_replicas()
        print("mine", flush=True)
        note(log=open(f"log{rank}.txt").read())
        """,
        2,
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.notes[0] == {"log": "mine\n"}
    assert "replicas equal" in ended.ranks[0].out
