"""What ranks share outside the model: the start, files, loops over items, sums, turns, and the end."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from nb2ddp.conversion.report import split
from nb2ddp.rewriting.findings import Batch
from tests.support.ranks import Ended, RankServer

Run = Callable[..., Ended]

# notebook's batch and accumulation, num_generations, least rows -> a rank's micro-batch and steps, on 2 and on 3 ranks
BATCHES = [
    ((2, 4, None, 1), (2, 2), (1, 4)),
    ((8, 1, None, 1), (4, 1), (2, 1)),
    ((1, 1, None, 1), (1, 1), (1, 1)),
    ((6, 3, None, 1), (3, 3), (6, 1)),
    ((1, 6, None, 1), (1, 3), (1, 2)),
    ((3, 2, None, 1), (3, 1), (1, 2)),
    ((4, 1, 4, 1), (2, 1), (4, 1)),
    ((1, 4, 8, 1), (8, 2), (2, 4)),
    ((2, 2, None, 2), (2, 1), (2, 1)),
    ((2, 1, None, 2), (2, 1), (2, 1)),
    ((4, 1, None, 2), (2, 1), (2, 1)),
    ((2, 6, None, 2), (2, 3), (2, 2)),
    ((1, 1, None, 2), (1, 1), (1, 1)),
]


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_batch_is_shared(run: Run, ranks: int) -> None:
    ended = run(
        f"for case in {[case for case, *_ in BATCHES]}:\n    note(got=ddp.share_batch(*case))\n",
        ranks,
    )
    assert not any(ended.codes), ended.text
    for rank in ended.ranks:
        assert [tuple(note["got"]) for note in rank.history] == [row[ranks - 1] for row in BATCHES]
    lines = ended.ranks[0].out.splitlines()
    for (batch, steps, generations, _), *shares in BATCHES:
        per_rank, accumulated = shares[ranks - 2]
        total = per_rank * accumulated * ranks
        assert lines.pop(0).endswith(f"{ranks} processes = {total} per step")
        wanted = batch * steps if not generations or batch * steps % generations == 0 else generations * steps
        if total != wanted:
            assert f"{wanted} does not divide" in lines.pop(0)
    assert not lines


def test_the_report_of_a_conversion_splits_a_batch_as_the_run_does(run: Run) -> None:
    grid = list(itertools.product(range(1, 9), range(1, 9), (1, 2, 3, 4, 8), (1,), range(1, 9)))
    grid += itertools.product(range(1, 9), range(1, 9), (1,), (2, 3), range(1, 9))
    ended = run(
        f"""
        shares = []
        for batch, steps, generations, least, ddp._run.world_size in {grid}:
            shares.append(ddp.share_batch(batch, steps, generations if generations > 1 else None, least))
        note(shares=shares)
        ddp._run.world_size = 1
        """,
        0,
    )
    assert ended.codes == [0], ended.text
    reported = [split(Batch(*batch), ranks) for *batch, ranks in grid]
    assert [tuple(share) for share in ended.notes[0]["shares"]] == reported


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_loop_is_shared(run: Run, ranks: int) -> None:
    ended = run(
        """
        import torch
        for count in (0, 1, 4, 7):
            answers, twice, seen = [], [], []
            for item in ddp.share_loop(range(count), answers, twice):
                seen.append(item)
                if item != 2:
                    answers.append(item)
                twice.extend([item, torch.tensor(float(item))])
            note(answers=answers, twice=twice, seen=seen)
        note(drawn=torch.rand(1).item())
        """,
        ranks,
    )
    assert not any(ended.codes), ended.text
    for number, rank in enumerate(ended.ranks):
        for count, note in zip((0, 1, 4, 7), rank.history[:4], strict=True):
            assert note["answers"] == [item for item in range(count) if item != 2]
            assert note["twice"] == [item for item in range(count) for _ in range(2)]
            assert note["seen"] == list(range(number, count, ranks))
        assert rank.notes["drawn"] == ended.notes[0]["drawn"]


def test_a_loop_over_different_items_is_refused(run: Run) -> None:
    ended = run(
        "results = []\nfor item in ddp.share_loop(range(4 + 4 * rank), results):\n    results.append(item)\n"
    )
    assert ended.codes == [1, 1], ended.text
    assert "the ranks went through different items: [2, 4] of them" in ended.ranks[0].err


@pytest.mark.parametrize("ranks", [2, 3])
def test_shell_lines_run_once(run: Run, ranks: int) -> None:
    ended = run(
        """
        print("before")
        ddp.shell("echo shell; echo x >> ran; env | grep ^RANK; false")
        ddp.shell("source /dev/null && [[ 1 == 1 ]] && echo bash")
        note(lines=ddp.shell_output("echo x >> ran; echo one; echo two"), there=open("ran").read())
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
        assert notes == expected
    assert ended.ranks[0].out == "before\nshell\nbash\n"
    assert not any(rank.out for rank in ended.ranks[1:])


@pytest.mark.parametrize("ranks", [2, 3])
def test_sums_and_turns(run: Run, ranks: int) -> None:
    ended = run(
        """
        import torch
        ddp.init_process_group()
        value = torch.tensor([1.0, 2.0])
        note(int=ddp.sum_over_ranks(rank + 1), float=ddp.sum_over_ranks(0.5), tensor=ddp.sum_over_ranks(value))
        note(kept=value)
        model = ddp.wrap(torch.nn.Linear(1, 1))
        note(turns=[(ddp.takes_turn(turn, 4, model), model.require_backward_grad_sync) for turn in range(4)])
        try:
            ddp.takes_turn(0, 1, model)
        except RuntimeError as error:
            note(few=str(error))
        """,
        ranks,
    )
    assert not any(ended.codes), ended.text
    for rank, notes in enumerate(ended.notes):
        assert notes["int"] == sum(range(1, ranks + 1))
        assert notes["float"] == 0.5 * ranks
        assert notes["tensor"] == [1.0 * ranks, 2.0 * ranks]
        assert notes["kept"] == [1.0, 2.0]
        assert notes["turns"] == [[turn % ranks == rank, turn + ranks >= 4] for turn in range(4)]
        assert notes["few"] == f"a step has 1 batches: too few for {ranks} processes"


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


@pytest.mark.parametrize("name", ["UNSLOTH_FSDP2", "UNSLOTH_TP_SIZE"])
def test_unsloths_own_sharding_is_refused(run: Run, name: str) -> None:
    ended = run("note(went_on=True)", environment={name: "2"})
    assert ended.codes == [1, 1]
    assert ended.ranks[0].err == (
        f"{name} is set: this script gives each GPU a copy of the model. Unset it and start again.\n"
    )
    assert ended.notes == [{}, {}]


def test_one_process_waits_for_nothing(run: Run) -> None:
    ended = run(
        """
        import torch
        with ddp.main_process_only() as is_main, ddp.main_process_first(), ddp.in_turn():
            results = []
            for item in ddp.share_loop([1, 2], results):
                results.append(item)
        model = torch.nn.Linear(1, 1)
        assert ddp.parallelize(model) is model and ddp.wrap(model) is model and type(model) is torch.nn.Linear
        note(main=is_main, results=results, all=ddp.from_all_ranks(3), sum=ddp.sum_over_ranks(2))
        note(one=ddp.from_main_process(lambda: 4), checked=ddp.check_replicas(model, "result"))
        ddp.finish()
        """,
        0,
    )
    assert ended.codes == [0], ended.text
    assert ended.notes == [
        {"main": True, "results": [1, 2], "all": [3], "sum": 2, "one": 4, "checked": "result"}
    ]


def test_replicas_that_differ_are_saved_first(run: Run) -> None:
    ended = run(
        """
        import torch
        ddp.init_process_group()
        model = torch.nn.Linear(2, 2)
        note(equal=ddp.check_replicas(model, 1))
        with torch.no_grad():
            model.bias[0] += 1e-6 * rank
        note(result=ddp.check_replicas(model, "result"))
        with ddp.main_process_only() as is_main:
            if is_main:
                torch.save(model.state_dict(), "model.pt")
        ddp.finish()
        print("saved")
        """,
        3,
    )
    assert ended.ranks[0].code == 1, ended.text
    assert (ended.folder / "model.pt").exists()
    assert ended.notes[0] == {"equal": 1, "result": "result"}
    assert "3 replicas equal, bit for bit" in ended.ranks[0].out
    assert "saved" in ended.ranks[0].out
    assert (
        "the ranks have trained different models: bias is not the same on all of them" in ended.ranks[0].err
    )


@pytest.mark.parametrize("ranks", [2, 3])
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


def test_what_was_printed_is_kept_when_a_rank_fails(run: Run) -> None:
    ended = run(
        "print('epoch 1, loss 0.5')\nimport sys\nsys.stdout.write('no newline')\n"
        "file = open(f'log-{rank}', 'w')\nfile.write('row')\n{}['x']\n"
    )
    assert ended.codes[0] == 1
    assert ended.ranks[0].out == "epoch 1, loss 0.5\nno newline"
    assert "KeyError: 'x'" in ended.ranks[0].err
    assert (ended.folder / "log-0").read_text() == "row"


# Gradients of several kinds, which are exchanged in a few buckets: as each of them alone. Of three ranks' numbers
# gloo adds the first two where a number stands in its bucket, as in DDP's buckets.
KINDS_OF_GRADIENTS = """
import torch, torch.distributed as dist
ddp.init_process_group()
ddp.wrap(torch.nn.Linear(1, 1))
torch.manual_seed(rank)
own = [torch.nn.Parameter(torch.zeros(size)) for size in ((), (3,), (5, 7), (4, 2, 3), (1000,))]
own += [torch.nn.Parameter(torch.zeros(6, 6, dtype=kind)) for kind in (torch.float64, torch.bfloat16)]
own += [torch.nn.Parameter(torch.zeros(2, 4, 3, 3).to(memory_format=torch.channels_last))]
table = torch.nn.Embedding(9, 4, sparse=True)
expected = []
for parameter in own:
    parameter.grad = torch.randn_like(parameter)
    alone = parameter.grad.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(alone)
    expected.append(alone / world_size)
table(torch.tensor([rank, 3])).sum().backward()
calls = []
all_reduce = dist.all_reduce
dist.all_reduce = lambda *args: (calls.append(1), all_reduce(*args))
torch.optim.SGD([*own, table.weight], lr=0.0).step()
note(calls=len(calls), equal=[torch.equal(p.grad, e) for p, e in zip(own, expected)])
note(close=[torch.allclose(p.grad, e, rtol=2e-2 if p.dtype == torch.bfloat16 else 1e-6) for p, e in zip(own, expected)])
note(sparse=table.weight.grad.to_dense()[:, 0], all=[p.grad.double() for p in own])
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_that_ddp_does_not_see_are_exchanged_together(run: Run, ranks: int) -> None:
    ended = run(KINDS_OF_GRADIENTS, ranks)
    assert ended.codes == [0] * ranks, ended.text
    first, *others = ended.notes
    assert first["calls"] == 5  # which are there, float32, float64, bfloat16, the sparse one
    assert ranks == 3 or all(first["equal"])
    assert all(first["close"])
    assert first["sparse"][3] == 1.0
    assert first["sparse"][0] == pytest.approx(1 / ranks)
    assert all(other == first for other in others)


def test_gradients_that_ddp_does_not_see_are_averaged_where_ranks_use_different_ones(run: Run) -> None:
    ended = run(
        """
        import torch
        ddp.init_process_group()
        ddp.wrap(torch.nn.Linear(1, 1))
        own = [torch.nn.Parameter(torch.zeros(2)) for _ in range(3)]
        optimizer = torch.optim.SGD(own, lr=1.0)
        (own[rank] * torch.tensor([2.0, 4.0])).sum().backward()
        optimizer.step()
        note(after=own)
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.notes == [{"after": [[-1.0, -2.0], [-1.0, -2.0], [0.0, 0.0]]}] * 2


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
        time.sleep(4.5)
        note(looks=len(looks) > 1)
        """,
        2,
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.notes == [{"looks": True}] * 2
    assert "Traceback" not in ended.text


SAVED = """
import torch, copy, pickle
model = ddp.parallelize(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))
model(torch.ones(4, 2)).sum().backward()
with ddp.main_process_only() as is_main:
    if is_main:
        torch.save(model, "model.pt")
copied = copy.deepcopy(model)
copied(torch.ones(4, 2)).sum().backward()
note(kind=type(copied).__name__, is_one=isinstance(model, torch.nn.Sequential), weight=model[0].weight)
"""


def test_a_saved_model_needs_nothing_of_ours(server: RankServer, tmp_path: Path) -> None:
    ended = server.run(tmp_path, "import ddp_support as ddp\nrank, _, _ = ddp.init(seed=0)\n" + SAVED)
    assert ended.codes == [0, 0], ended.text
    load = (
        "import sys, torch\nmodel = torch.load('model.pt', weights_only=False)\n"
        "note(kind=str(type(model)), ours='ddp_support' in sys.modules, weight=model[0].weight)\n"
    )
    loaded = server.run(tmp_path, load, 0)
    assert loaded.codes == [0], loaded.text
    assert loaded.notes[0]["kind"] == "<class 'torch.nn.modules.container.Sequential'>"
    assert not loaded.notes[0]["ours"]
    assert loaded.notes[0]["weight"] == ended.notes[0]["weight"]


def test_dropout_leaves_the_generators_alike(run: Run) -> None:
    ended = run(
        """
        import random, torch
        model = ddp.parallelize(torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.Dropout(0.5)))
        outs = [model(torch.ones(4, 3)).detach() for _ in range(2)]
        note(outs=outs, drawn=[random.random(), torch.rand(2)])
        zeros = [(out == 0).flatten().tolist() for out in outs]
        note(fresh=zeros[0] != zeros[1], rows_differ=bool((outs[0][0] != outs[0][2]).any()))
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.notes[0] == ended.notes[1]
    assert ended.notes[0]["fresh"]
    assert ended.notes[0]["rows_differ"]


def test_ranks_with_different_batches_are_refused(run: Run) -> None:
    ended = run(
        "import torch\nmodel = ddp.parallelize(torch.nn.Linear(2, 2))\nmodel(torch.full((4, 2), float(rank)))\n"
    )
    assert ended.codes == [1, 1], ended.text
    assert "rank 1 trains on another batch than rank 0. Every rank must make the same data: seed what" in (
        ended.ranks[0].err
    )


def test_frozen_parameters_are_rank_0s_and_those_that_cannot_be_sent_stay(run: Run) -> None:
    ended = run(
        """
        import torch
        class Quantised(torch.Tensor):
            made = False
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                if cls.made and function.__name__ in ("detach", "broadcast", "broadcast_", "copy_"):
                    raise NotImplementedError("no such operation of this type")
                return super().__torch_function__(function, types, args, kwargs or {})
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
        model[0].weight = torch.nn.Parameter(torch.full((2, 2), float(rank)), requires_grad=False)
        model.quantised = torch.nn.Parameter(torch.ones(3).as_subclass(Quantised), requires_grad=False)
        Quantised.made = True
        ddp.init_process_group()
        wrapped = ddp.wrap(model)
        wrapped(torch.ones(1, 2)).sum().backward()
        note(frozen=model[0].weight.tolist(), gradient=model[1].weight.grad.tolist())
        ddp.finish()
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert [notes["frozen"] for notes in ended.notes] == [[[0.0, 0.0], [0.0, 0.0]]] * 2
    assert ended.notes[0]["gradient"] == ended.notes[1]["gradient"]


def test_a_rank_ends_where_its_error_cannot_be_recorded(run: Run) -> None:
    ended = run(
        "if rank == 1:\n    raise ValueError('the fault')\nddp.init_process_group()\n",
        environment={"TORCHELASTIC_ERROR_FILE": "/nowhere/error.json"},
    )
    assert ended.codes == [1, 1], ended.text
    assert "ValueError: the fault" in ended.ranks[1].err
    assert max(rank.seconds for rank in ended.ranks) < 20


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


def test_a_file_of_weights_is_whole_or_not_there(run: Run) -> None:
    ended = run(
        """
        import os
        import torch
        from safetensors.torch import load_file, save_file
        class Breaks:
            def __reduce__(self):
                raise RuntimeError("the disk is full")
        torch.save({"a": torch.ones(3)}, "kept.pt")
        try:
            torch.save({"a": torch.zeros(100_000), "b": Breaks()}, f="kept.pt")
        except RuntimeError as error:
            note(error=str(error))
        save_file({"a": torch.ones(2)}, f"weights-{rank}.safetensors", metadata={"format": "pt"})
        note(kept=torch.load("kept.pt")["a"], weights=load_file(f"weights-{rank}.safetensors")["a"])
        with ddp.main_process_only() as is_main:
            if is_main:
                note(left=sorted(name for name in os.listdir() if "unfinished" in name))
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.notes[0]["error"] == "the disk is full"
    assert ended.notes[0]["kept"] == [1, 1, 1]
    assert ended.notes[0]["weights"] == [1, 1]
