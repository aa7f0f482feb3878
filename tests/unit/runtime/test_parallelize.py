"""A loop over whole batches: on several ranks it gives the losses and the parameters of one process."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.ranks import Ended, RankServer
from tests.unit.runtime.conftest import RANK_COUNTS, START
from tests.unit.runtime.loop_tools import TOOLS

Run = Callable[..., Ended]
TOLERANCE = 1e-5


def distance(one: Any, other: Any) -> float:
    """The largest difference between two nested lists of numbers."""
    if isinstance(one, list):
        assert len(one) == len(other)
        return max((distance(a, b) for a, b in zip(one, other, strict=True)), default=0.0)
    return 0.0 if one == other or (one != one and other != other) else float(abs(one - other))


def assert_as_one_process(one: Ended, several: Ended) -> None:
    assert one.codes == [0], one.text
    assert not any(several.codes), several.text
    expected, first, *others = one.notes[0], *several.notes
    assert len(expected["losses"]) > 2
    for other in others:
        assert other == first, "the ranks are not bit-equal"
    for name in expected.keys() - {"drawn"}:
        assert distance(expected[name], first[name]) < TOLERANCE, f"{name}\n{several.text}"


@pytest.mark.parametrize("ranks", RANK_COUNTS)
def test_rows_that_choose_differently_are_divided_where_it_is_right(
    server: RankServer, tmp_path: Path, ranks: int
) -> None:
    """Experts take other rows of each rank, and the mean over all rows stays right."""
    script = """
        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate, self.experts = nn.Linear(5, 2), nn.ModuleList(nn.Linear(5, 3) for _ in range(2))
            def forward(self, x, y):
                of_rows, out = self.gate(x).argmax(1), torch.zeros(len(x), 3)
                for number, expert in enumerate(self.experts):
                    chosen = (of_rows == number).nonzero()[:, 0]
                    if len(chosen):
                        out = out.index_add(0, chosen, expert(x[chosen]))
                return F.cross_entropy(out, y)
        model = ddp.parallelize(Experts())
        train(model, batches(x[:20], y[:20]), model)
        end(model)
    """
    runs = [server.run(tmp_path / str(n), START + TOOLS + textwrap.dedent(script), n) for n in (0, ranks)]
    assert_as_one_process(*runs)
    assert "WARNING" not in runs[1].text


# what a model computes by, and what changes it: from then on rows depend on one another
SETTINGS = {
    "a flag": ("net.centred", "net.centred = True"),
    "a number": ("net.stage > 5", "net.stage = step + 1"),
    "a text": ("net.mode == 'centred'", "net.mode = 'centred'"),
    "an attribute that is new": ("getattr(net, 'level', 1) > 1", "net.level = 2"),
    "an attribute of the class": ("net.shared", "Net.shared = True"),
    "a configuration": ("net.config['mode'] == 'centred'", "net.config['mode'] = 'centred'"),
    "an object": ("net.options.centred", "net.options.centred = True"),
    "the mode of a part": ("not net.body[1].training", "net.body[1].eval()"),
    "a layer that is added": ("False", "net.body.append(Centre())"),
    "an attribute of a part": ("net.part.centred", "net.part.centred = True"),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case in ("a flag", "a configuration") else pytest.mark.thorough)
        for case in SETTINGS
    ],
)
def test_a_setting_that_changes_later_is_compared_again(
    server: RankServer, tmp_path: Path, case: str
) -> None:
    reads, changes = SETTINGS[case]
    script = f"""
        from types import SimpleNamespace
        class Centre(nn.Module):
            centred = False
            def forward(self, x):
                return x - x.mean(0)
        class Net(Body):
            shared, stage = False, 0
            def __init__(self):
                super().__init__()
                self.centred, self.mode, self.config = False, "plain", {{"mode": "plain"}}
                self.options, self.part = SimpleNamespace(centred=False), Centre()
            def forward(net, x):
                out = net.body(x)
                return out - out.mean(0) if {reads} else out
        net = ddp.parallelize(Net())
        x, y = rows(40)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step, (a, b) in enumerate(batches(x, y)):
            if step > 4:
                {changes}
            loss = F.cross_entropy(net(a), b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        end(net)
    """
    one, several = server.compare(tmp_path, START + TOOLS + textwrap.dedent(script))
    assert_as_one_process(one, several)
    assert several.ranks[0].err.count("every rank computes whole batches") == 1, several.text


def test_a_count_that_each_call_changes_is_no_reason_to_compare(run: Run) -> None:
    ended = run(
        """
        import torch
        class Net(torch.nn.Linear):
            calls = 0
            def forward(self, x):
                self.calls += 1
                return super().forward(x)
        torch.manual_seed(0)
        net = ddp.parallelize(Net(3, 1))
        settings, of_mode = [], ddp._splits[net].settings[True, True]
        changed = of_mode.changed
        of_mode.changed = lambda *args, **_: settings.append(changed(*args)) or settings[-1]
        for _ in range(200):
            net(torch.randn(4, 3)).sum().backward()
        note(changed=sum(settings), calls=net.calls, seen=len(settings))
        """
    )
    assert ended.codes == [0, 0], ended.text
    # once for the name of the loop's own counter
    assert ended.notes[0] == {"changed": 1, "calls": 200, "seen": 200}


def test_short_calls_without_gradients_are_compared_once_and_stay_each_ranks_own(run: Run) -> None:
    ended = run(
        """
        import torch
        torch.manual_seed(0)
        ddp._Split.worth, met = 60.0, []
        net = ddp.parallelize(torch.nn.Linear(3, 1))
        net(torch.randn(4, 3)).sum().backward()
        with torch.no_grad():
            for _ in range(40):
                net(torch.randn(4, 3))
                met.append(ddp._run.meetings[""])
        note(met=len(set(met)), calls=ddp._splits[net].calls)
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.notes[0] == {"met": 1, "calls": 2}


def test_what_is_new_in_each_call_and_never_divided_is_compared_no_more(run: Run) -> None:
    ended = run(
        """
        import torch
        class Net(torch.nn.Linear):
            def forward(self, x, **more):
                out = super().forward(x)
                return out - out.mean(0)
        torch.manual_seed(0)
        net = ddp.parallelize(Net(3, 2))
        for call in range(60):
            net(torch.randn(4, 3), **{f"word{call}": 1}).pow(2).sum().backward()
        split = ddp._splits[net]
        note(compared=len(split.kinds), whole=len(split.whole))
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.notes[0] == {"compared": 16, "whole": 60}


def test_a_model_prints_of_whole_batches_and_once_for_each_call(server: RankServer, tmp_path: Path) -> None:
    script = """
        class Net(Body):
            def forward(self, x):
                print("rows:", len(x))
                return self.body(x)
        model = ddp.parallelize(Net())
        train(model, batches(x[:20], y[:20]), lambda x, y: F.cross_entropy(model(x), y))
        end(model)
    """
    runs = [server.run(tmp_path / str(n), START + TOOLS + textwrap.dedent(script), n) for n in (0, 2)]
    assert_as_one_process(*runs)
    printed = [
        line for run in runs for line in run.ranks[0].out.splitlines() if not line.startswith("nb2ddp")
    ]
    assert printed == ["rows: 4"] * 10
    assert "remove the print to divide the work" in runs[1].ranks[0].err


@pytest.mark.parametrize(
    ("forward", "call", "why"),
    [
        ("x, mode", "x, Mode()", "an object that is no plain tensor, list or value"),
        ("mask, x", "torch.masked.masked_tensor(x, x > 0), x", "an object that is no plain tensor"),
        ("x", "x[0].sum()", "no tensor with a batch dimension"),
        ("x", "x[:1]", "fewer rows than there are ranks"),
    ],
)
def test_why_a_batch_cannot_be_divided(
    server: RankServer, tmp_path: Path, forward: str, call: str, why: str
) -> None:
    script = f"""
        class Mode:
            pass
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(1))
            def forward(self, {forward}):
                return x * self.weight
        for model in ddp.parallelize(Net()), ddp.parallelize(Net()):  # of two folds, say
            model({call}).sum().backward()
    """
    ended = server.run(tmp_path, START + TOOLS + textwrap.dedent(script), 2)
    assert not any(ended.codes), ended.text
    found = re.findall(f"a batch is computed by every rank: it.* {why}", ended.ranks[0].err)
    assert len(found) == 1, ended.text


IN_16_BITS = """
import torch
from torch import nn
class Net(nn.Linear):
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=WHERE == "forward"):
            return super().forward(x).float()
kind = Net if WHERE in ("forward", "nowhere") else nn.Linear
model = ddp.parallelize(kind(4, 2, dtype=torch.bfloat16 if WHERE == "model" else torch.float32))
x = torch.ones(6, 4, dtype=torch.bfloat16 if WHERE == "model" else torch.float32)
for _ in range(3):
    with torch.autocast("cpu", torch.bfloat16, enabled=WHERE == "autocast"):
        model(x).float().sum().backward()
"""


@pytest.mark.parametrize(("where", "says"), [("autocast", 1), ("model", 1), ("forward", 1), ("nowhere", 0)])
def test_rows_that_are_computed_in_16_bits_are_said(run: Run, where: str, says: int) -> None:
    ended = run(IN_16_BITS.replace("WHERE", repr(where)))
    assert ended.codes == [0, 0], ended.text
    assert ended.ranks[0].err.count("in 16 bits, which rounds otherwise") == says
    assert "WARNING" not in ended.ranks[1].err


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_draws_the_same_numbers_again(run: Run, reentrant: bool) -> None:
    """The gradient of a block is that of the numbers which its forward() drew."""
    ended = run(
        TOOLS
        + f"""
from torch.utils.checkpoint import checkpoint
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(5))
    def block(self, x):
        return F.dropout(x * torch.rand(len(x), 1), 0.5, self.training)
    def forward(self, x):
        return checkpoint(self.block, x * self.scale, use_reentrant={reentrant})
model = ddp.parallelize(Net())
off = []
for _ in range(5):
    x = torch.ones(8, 5, requires_grad=True)
    out = model(x)
    out.sum().backward()
    off.append((x.grad - out.detach()).abs().max().item())
note(off=off)
"""
    )
    assert not any(ended.codes), ended.text
    assert max(ended.notes[0]["off"]) < 1e-6


def test_whole_batches_of_a_batch_norm_give_the_gradients_of_one_process(run: Run) -> None:
    """A mean of three equal numbers rounds, and AdamW makes steps of what rounds: a bias before a batch norm, say."""
    program = f"""{START}{TOOLS}
model = ddp.parallelize(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
train(model, batches(x, y) * 5, lambda x, y: F.cross_entropy(model(x), y), optimizer)
end(model)
"""
    one, three = run(program, ranks=0), run(program, ranks=3)
    assert not any((*one.codes, *three.codes)), three.text
    assert three.notes[0] == one.notes[0]


@pytest.mark.parametrize("draw", ["torch.rand(1)", "random.random()", "numpy.random.rand()"])
def test_numbers_that_one_rank_draws_are_noticed(server: RankServer, tmp_path: Path, draw: str) -> None:
    script = f"""
        import numpy
        model = ddp.parallelize(nn.Sequential(nn.Linear(5, 8), nn.Dropout(), nn.Linear(8, 3)))
        def loss_of(x, y):
            if rank == 0 and len(losses) == 2:
                {draw}
            return F.cross_entropy(model(x), y)
        train(model, batches(x, y), loss_of)
        end(model)
    """
    single, ended = (
        server.run(tmp_path / str(n), START + TOOLS + textwrap.dedent(script), n) for n in (0, 2)
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.ranks[0].err.count("a rank had drawn random numbers that the others had not") == 1
    assert ended.notes[0]["drawn"] == ended.notes[1]["drawn"] == single.notes[0]["drawn"]


def test_numbers_that_each_rank_draws_apart_are_said_to_change_later_ones(run: Run) -> None:
    program = f"""{START}{TOOLS}
net = ddp.parallelize(nn.LSTM(5, 3, num_layers=2, dropout=0.3, batch_first=True))
train(net, batches(x[:, None], size=6), lambda x: net(x)[0].square().mean())
note(shuffled=torch.randperm(9), losses=losses)
"""
    one, several = run(program, ranks=0), run(program)
    assert not any((*one.codes, *several.codes)), several.text
    assert several.notes[0] == several.notes[1]
    said = several.ranks[0].err
    assert (several.notes[0] == one.notes[0]) is ("the order of shuffled samples" not in said), several.text


@pytest.mark.parametrize(
    "wrapper", ["torch.compile(model, backend='eager')", "nn.Sequential(model, nn.Tanh())"]
)
def test_a_model_that_is_trained_alone_and_then_as_a_part(
    server: RankServer, tmp_path: Path, wrapper: str
) -> None:
    script = f"""
        model = mlp()
        def find_rate():
            ddp.parallelize(model)
            train(model, batches(x, y)[:2], lambda x, y: F.cross_entropy(model(x), y))
        find_rate()
        whole = ddp.parallelize({wrapper})
        train(whole, batches(x, y), lambda x, y: F.cross_entropy(whole(x), y))
        find_rate()
        train(whole, batches(x, y), lambda x, y: F.cross_entropy(whole(x), y))
        end(whole)
    """
    runs = [server.run(tmp_path / str(n), START + TOOLS + textwrap.dedent(script), n) for n in (0, 2)]
    assert_as_one_process(*runs)
    assert "saves no time" not in runs[1].text


@pytest.mark.parametrize("ranks", RANK_COUNTS)
def test_calls_for_several_tasks_make_one_loss(server: RankServer, tmp_path: Path, ranks: int) -> None:
    """Each leaves out the heads of the others, and the loss has weights that no call reads."""
    script = """
        class Tasks(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.heads = mlp(), nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
                self.weight = nn.Parameter(torch.ones(2))
            def forward(self, task, x):
                return self.heads[task](self.body(x))
        model = ddp.parallelize(Tasks())
        def loss_of(x, y):
            each = [F.cross_entropy(model(task, x), y) for task in "ab"[: 1 + len(losses) % 3]]
            return sum(w * loss for w, loss in zip(model.weight, each))
        train(model, batches(x, y, size=6), loss_of)
        ddp.check_replicas(model)
        end(model)
    """
    runs = [server.run(tmp_path / str(n), START + TOOLS + textwrap.dedent(script), n) for n in (0, ranks)]
    assert_as_one_process(*runs)
    assert "saves no time" not in runs[1].text


def test_outputs_that_nobody_reads_are_not_exchanged(run: Run) -> None:
    """They are named by keys or places; where one of these is missing, all are exchanged."""
    ended = run(
        """
        import torch
        class Net(torch.nn.Linear):
            as_dict = False
            def forward(self, x):
                logits = super().forward(x)
                loss = logits.square().mean()
                return {"logits": logits, "loss": loss} if self.as_dict else (logits, loss)
        seen, exchanged, gather = [], [], ddp._all_rows
        ddp._all_rows = lambda own, sizes: exchanged.append(sum(sizes)) or gather(own, sizes)
        ddp._checks.is_on = False  # after the first call
        for as_dict, keys in ((False, [1]), (True, ["loss"]), (False, ["loss"]), (True, [1]), (False, [0, 1])):
            net = Net(3, 5)
            net.as_dict = as_dict
            ddp.parallelize(net)
            ddp.only_outputs(net, *keys)(torch.ones(6, 3))  # which is compared first
            exchanged.clear()
            for _ in range(3):
                out = ddp.only_outputs(net, *keys)(torch.ones(6, 3))
            logits, loss = out.values() if as_dict else out
            loss.backward()
            unread = 6 not in exchanged
            net(torch.ones(6, 3))
            assert 6 in exchanged  # a call that does not say what is read
            seen.append(unread)
        assert ddp.only_outputs(len, 0) is len
        note(seen=seen)
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert all(rank["seen"] == [True, True, False, False, False] for rank in ended.notes)


def test_an_output_that_is_read_after_all_says_what_to_change(run: Run) -> None:
    ended = run(
        """
        import copy, torch
        class Net(torch.nn.Linear):
            def forward(self, x):
                logits = super().forward(x)
                return {"logits": logits, "loss": logits.square().mean()}
        ddp._checks.is_on = False  # after the first call
        net = ddp.parallelize(Net(3, 5))
        for _ in range(3):
            logits = ddp.only_outputs(net, "loss")(torch.ones(6, 3))["logits"]
        said = []
        for read in (torch.mean, torch.argmax, len, list, float, str, repr, bool, copy.copy, torch.tensor,
                     lambda x: x.shape, lambda x: x.dtype, lambda x: x[0], lambda x: x + 1, lambda x: 1 - x,
                     lambda x: x == 1, lambda x: x < 1, lambda x: f"{x}", lambda x: x.detach().numpy(),
                     lambda x: torch.ones(2).to(x),
                     lambda x: torch.nn.functional.cross_entropy(x, torch.ones(2)), lambda x: torch.stack([x, x]),
                     lambda x: x.__setitem__(0, 1), lambda x: x.requires_grad, lambda x: x.data):
            try:
                read(logits)
            except (AttributeError, RuntimeError) as error:
                said.append(str(error))
        assert len(said) == 25
        note(said=said)
        """
    )
    assert ended.codes == [0, 0], ended.text
    for rank in ended.notes:
        assert set(rank["said"]) == {rank["said"][0]}
        assert "says only_outputs(model, 'loss'): nothing else" in rank["said"][0]
        assert ", line " in rank["said"][0]
