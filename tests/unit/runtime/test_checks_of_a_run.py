"""Every run checks itself: each fault of the runtime that changes what is trained is said by the run that has it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nb2ddp.runtime import call_results, run_state
from tests.support.ranks import RankServer
from tests.unit.runtime.conftest import START
from tests.unit.runtime.test_loops_like_notebooks import SCRIPT
from tests.unit.runtime.trainer_tools import TOOLS

# A model with outputs for rows, a mean and random numbers, and what is wrong in the runtime from a step on.
TRAIN = """
def patch(owner, name, make):
    old = getattr(owner, name)
    setattr(owner, name, make(old))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)
    def forward(self, x, y, mask):
        h = F.dropout(torch.tanh(self.a(x)), 0.2, self.training)
        out = self.b(h)
        each = F.cross_entropy(out, y, reduction="none")
        return out, (each * mask).sum() / mask.sum()
net = Net()
ddp.parallelize(net)
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
x, y, mask = torch.randn(240, 6), torch.randint(0, 3, (240,)), (torch.rand(240) > 0.3).float()
for step in range(20):
    if step == FROM and world_size > 1:
        FAULT
    rows = slice(step * 12, step * 12 + 12)
    out, loss = net(x[rows], y[rows], mask[rows])
    opt.zero_grad()
    (loss + out.logsumexp(1).mean()).backward()
    opt.step()
    log(loss)
end(net)
"""
FAULTS = {
    "a row is dropped": """
        gather = ddp._all_rows
        ddp._all_rows = lambda own, sizes: torch.cat([(of := gather(own, sizes))[:-1], of[-2:-1]])
    """,
    "the ranks' rows change places": """
        gather = ddp._all_rows
        ddp._all_rows = lambda own, sizes: gather(own, sizes).roll(sizes[0], 0)
    """,
    "all ranks compute the same rows": """
        patch(ddp._Parts, "of", lambda of: lambda self, start, end, **options: of(
            self, *((start, end) if end - start == self.rows else (0, end - start)), **options))
    """,
    "rows are rounded on their way": """
        gather = ddp._all_rows
        ddp._all_rows = lambda own, sizes: gather(own.bfloat16(), sizes).to(own.dtype)
    """,
    "a wrong weight": "ddp._best_weights = lambda ways, parts: parts.mean_over_rows",
    "a sum instead of a mean": "ddp._best_weights = lambda ways, parts: [1.0] * ddp._run.world_size",
    "a rank's own random numbers": """
        if rank == 1:
            patch(ddp._DropoutRows, "_dropout", lambda of: lambda self, func, x, p=0.5, *more:
                  x * (torch.rand(x.shape) > p) / (1 - p))
    """,
    "no random numbers on a rank": """
        if rank == 1:
            patch(ddp._DropoutRows, "_dropout", lambda of: lambda self, func, x, *more: x)
    """,
    "gradients of rows that are too small": """
        ddp._TakeRows.forward = staticmethod(lambda ctx, whole, sizes, power: (
            setattr(ctx, "sizes", sizes), whole[sum(sizes[:rank]):][:sizes[rank]].clone())[1])
    """,
    "gradients of another rank's rows": """
        ddp._TakeRows.forward = staticmethod(lambda ctx, whole, sizes, power: (
            setattr(ctx, "sizes", sizes), whole[:sizes[rank]] * world_size)[1])
    """,
    "gradients of a number without its weight": """
        ddp._WeighGradient.forward = staticmethod(lambda ctx, grad, weight: (
            setattr(ctx, "weight", weight), grad.clone())[1])
    """,
    "gradients that are summed": "ddp._Bucket.take = of_sums",
    "gradients that nobody exchanges": "ddp._Bucket.launch = alone",
    "a bucket that is exchanged before it is full": "ddp._Bucket.launch = early",
    "a parameter of one rank is another": """
        if rank == 1:
            with torch.no_grad():
                net.a.bias.add_(0.01)
    """,
    "a rank trains on other data": "x = x + 0.1 * rank",
    "a rank's model is in evaluation": "net.eval() if rank == 1 else None",
    "a rank's optimizer steps otherwise": """
        if rank == 1:
            opt.param_groups[0]["betas"] = 0.5, 0.6  # not a number, which would be rank 0's
    """,
}
WRONG_BUCKETS = """
def of_sums(self, *, whole, used):
    self.work.wait()
    for parameter, part in zip(self.parameters, self.flat.split([p.numel() for p in self.parameters])):
        parameter.grad.copy_(part.view_as(parameter))
class Done:
    def wait(self): pass
exchange = ddp._Bucket.launch if hasattr(ddp, "_Bucket") else None
def alone(self, *, whole):
    exchange(self, whole=whole)
    self.work.wait()
    self.flat, self.work = torch.cat([p.grad.reshape(-1) for p in self.parameters]), Done()
def early(self, *, whole):
    grads = [p.grad for p in self.parameters]
    self.parameters[0].grad = None
    exchange(self, whole=whole)
    self.parameters[0].grad = grads[0]
"""


OF_EACH_EXCHANGE = ("a bucket that is exchanged before it is full",)
# `make test-all` injects these into loops, too, and each of the others from step 31 on.
LATER = (
    "a sum instead of a mean",
    "gradients of rows that are too small",
    "gradients of a number without its weight",
    "a rank trains on other data",
)
RUNS = [
    pytest.param(step, fault, marks=() if (fault in kept) is (step == 31) else pytest.mark.thorough)
    for step, kept in ((1, LATER), (31, OF_EACH_EXCHANGE))
    for fault in FAULTS
]


@pytest.mark.parametrize(("step", "fault"), RUNS)
def test_a_fault_is_said(server: RankServer, tmp_path: Path, fault: str, step: int) -> None:
    lines = FAULTS[fault].strip("\n").splitlines()
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    body = "\n        ".join(line[margin:] for line in lines)
    program = SCRIPT + WRONG_BUCKETS + TRAIN.replace("FAULT", body).replace("FROM", str(step))
    if step > 20:
        program = program.replace("range(20)", "range(44)").replace("240", "528")
    ended = server.run(tmp_path, program, 2, environment={"NB2DDP_PATIENCE": "4"})
    said = "".join(rank.err for rank in ended.ranks)
    assert re.search(
        "a check failed|every rank computes whole|nb2ddp: ERROR|the ranks went different ways|Error: rank",
        said,
    ), ended.text


def test_a_run_without_faults_says_what_was_checked(server: RankServer, tmp_path: Path) -> None:
    evaluated = (
        "net.eval()\nwith torch.no_grad():\n    net(x[:12], y[:12], mask[:12])\nend(net)"  # no step of the 20
    )
    program = SCRIPT + TRAIN.replace("FAULT", "pass").replace("FROM", "-1").replace("end(net)", evaluated)
    ended = server.run(tmp_path, program + "note(checks=ddp._run.checks)", 2)
    assert not any(ended.codes), ended.text
    assert "WARNING" not in ended.text
    checks = ended.notes[0]["checks"]
    assert checks["checked"] >= 3
    assert checks["difference"] < 1e-5
    assert checks["gradients"] < 1e-5
    assert re.search(
        r"nb2ddp: checked: \d+ of 20 steps recomputed as one process, largest diff", ended.ranks[0].out
    )


@pytest.mark.parametrize("fault", ["pass", "ddp._Bucket.launch = alone"])
def test_gradients_of_16_bits_are_off_by_what_these_round(
    server: RankServer, tmp_path: Path, fault: str
) -> None:
    program = TRAIN.replace("net = Net()", "net = Net().bfloat16()").replace(
        "(240, 6)", "(240, 6).bfloat16()"
    )
    program = WRONG_BUCKETS + program.replace("FAULT", fault).replace("FROM", "1")
    ended = server.run(tmp_path, SCRIPT + program, 2, environment={"NB2DDP_PATIENCE": "4"})
    said = "gradients were not averaged" in ended.ranks[0].err
    assert said is (fault != "pass"), ended.text
    assert said or not any(ended.codes), ended.text


@pytest.mark.parametrize("checks", ["off", "50"])
def test_how_many_steps_are_checked(server: RankServer, tmp_path: Path, checks: str) -> None:
    program = (
        SCRIPT + TRAIN.replace("FAULT", "pass").replace("FROM", "-1") + "note(n=ddp._run.checks['checked'])"
    )
    ended = server.run(tmp_path, program, 2, environment={"NB2DDP_CHECKS": checks})
    assert not any(ended.codes), ended.text
    assert (ended.notes[0]["n"] <= 3) is (checks == "off")


def test_strict_ends_with_exit_code_1_after_saving(server: RankServer, tmp_path: Path) -> None:
    """Where the fault begins, nothing is new that a run asks about: one of the checks at random finds it."""
    program = (
        SCRIPT
        + """
import sys
def late(of):
    def forward(self, x, y, mask):
        out, loss = of(self, x, y, mask)
        return out - out.mean(0) * (sys.getswitchinterval() > 1), loss
    return forward
"""
        + TRAIN.replace("FAULT", "sys.setswitchinterval(2)")
        .replace("FROM", "10")
        .replace("opt =", "patch(Net, 'forward', late)\nopt =")
        .replace("for step in", "x[0], x[1], y[:3] = 9, -9, torch.arange(3)\nfor step in")
        + "torch.save(net.state_dict(), 'net.pt')\nddp.finish()\n"
    )
    ended = server.run(tmp_path, program, 2, environment={"NB2DDP_STRICT": "1"})
    assert "a check failed" in ended.ranks[0].err, ended.text
    assert "vouches for its own step" in ended.ranks[0].err, ended.text
    assert ".." not in ended.ranks[0].err, ended.text
    assert ended.codes[0] == 1, ended.text
    assert (tmp_path / "net.pt").exists()


def test_a_change_that_is_seen_before_its_call_is_no_failed_check(server: RankServer, tmp_path: Path) -> None:
    """Also where a comparison was planned for that step: the one before was right."""
    program = (
        SCRIPT
        + """
class Net(Body):
    centres = False
    def forward(self, x):
        out = self.body(x)
        return out - out.mean(0) if self.centres else out
model = ddp.parallelize(Net())
for step in range(6):
    model.centres = step > 2
    train(model, batches(x, y, size=12)[:1], lambda x, y: F.cross_entropy(model(x), y))
end(model)
"""
    )
    ended = server.run(tmp_path, program, 2, environment={"NB2DDP_STRICT": "1"})
    assert not any(ended.codes), ended.text
    assert "every rank computes whole batches, which saves no time: rows depend" in ended.ranks[0].err, (
        ended.text
    )
    assert "a check failed" not in ended.ranks[0].err, ended.text


def test_prints_that_begin_later_are_no_failed_check(server: RankServer, tmp_path: Path) -> None:
    """No call that was divided has printed: each ends there, and all ranks compute it whole."""
    program = (
        SCRIPT
        + """
import os
class Net(Body):
    def forward(self, x):
        if int(os.environ["STEP"]) > 4:
            print(len(x), "rows")
        return self.body(x)
model = ddp.parallelize(Net())
for step in range(12):
    os.environ["STEP"] = str(step)
    train(model, batches(x, y, size=12)[:1], lambda x, y: F.cross_entropy(model(x), y))
end(model)
"""
    )
    ended = server.run(tmp_path, program, 2, environment={"NB2DDP_STRICT": "1", "NB2DDP_CHECKS": "300"})
    assert not any(ended.codes), ended.text
    assert ended.ranks[0].out.count("12 rows") == 7, ended.text
    assert "every rank computes whole batches, which saves no time: forward() prints" in ended.ranks[0].err, (
        ended.text
    )
    assert "a check failed" not in ended.ranks[0].err, ended.text


def test_a_failed_check_says_how_far_off_the_gradients_are(server: RankServer, tmp_path: Path) -> None:
    """Their rows meet in backward() alone, through a tensor too large to be taken for a flag."""
    program = (
        SCRIPT
        + """
class Centred(torch.autograd.Function):
    on = torch.zeros(40)
    @staticmethod
    def forward(ctx, out):
        return out.clone()
    @staticmethod
    def backward(ctx, g):
        return g - Centred.on[0] * g.mean(0)
class Net(Body):
    def forward(self, x):
        return Centred.apply(self.body(x))
model = ddp.parallelize(Net())
for step in range(20):
    Centred.on.fill_(step > 8)
    train(model, batches(x, y, size=12)[:1], lambda x, y: F.cross_entropy(model(x), y))
end(model)
"""
    )
    ended = server.run(tmp_path, program, 2)
    assert re.search(
        r"a check failed at step \d+: the gradient of .* \(by [1-9]e-0[1-4] of the", ended.text
    ), ended.text


# A Trainer whose micro-batches are also divided, or the only one of a step, and what is wrong from its third step on.
TRAINER = """
def after(owner, name, then):
    old = getattr(owner, name)
    def changed(*a, **k):
        result = old(*a, **k)
        then()
        return result
    setattr(owner, name, changed)
def scale(factor):
    for parameter in t.model.parameters():
        if parameter.grad is not None:
            parameter.grad *= factor
def rolled(batch):
    return {name: value.roll(1, -1) for name, value in batch.items()}
class From(TrainerCallback):
    def on_step_begin(self, a, state, c, **k):
        if state.global_step == 2 and world_size > 1:
            turns = t._turns
            FAULT
collate = [COLLATE]
t = Trainer(MODEL, args(max_steps=10, per_device_train_batch_size=8 // COUNT, gradient_accumulation_steps=COUNT),
    train_dataset=ROWS, data_collator=lambda rows: collate[0](rows), callbacks=[From()])
ddp.init_process_group()
ddp.wrap_trainer(t)
t.train()
ddp.check_replicas(t.model)
ddp.finish()
"""
OF_TRAINERS = {
    "gradients are averaged": "after(turns, '_sum', lambda: scale(0.5))",
    "gradients are not exchanged": "turns._sum = lambda *a: None",
    "the gradients of a micro-batch are lost": "after(turns, '_record', lambda: scale(0) if rank else None)",
    "a micro-batch is computed from other tokens": """
        compute = turns._record
        turns._record = lambda turn, inputs, **k: compute(turn, rolled(inputs) if rank else inputs, **k)
    """,
    "a row of a part is lost": """
        of = ddp._Rows.of
        ddp._Rows.of = lambda self, part, **k: of(self, part[1:] if rank and len(part) > 1 else part, **k)
    """,
    "parts count twice": """
        weights = ddp._RowParts.figure_weights
        ddp._RowParts.figure_weights = lambda *a: {way: [2 * w for w in of] for way, of in weights(*a).items()}
    """,
    "a rank draws its own random numbers": """
        states = turns.draws.states
        turns.draws.states = lambda *a: [(torch.manual_seed(rank), ddp._random_state())[1] for _ in states(*a)]
    """,
    "a rank reads other tokens": "collate[0] = lambda rows: rolled(pad(rows)) if rank else pad(rows)",
    "a rank reads longer rows": "collate[0] = lambda rows: pad(rows + lm_rows(rank, 140, 141))",
    "a parameter of one rank moves": "torch.nn.init.zeros_(next(t.model.parameters())) if rank else None",
    "a rank's model is in evaluation": "t.model.train = lambda mode=True: nn.Module.train(t.model, not rank)",
    "a rank's optimizer steps otherwise": "t.optimizer.param_groups[0].update(betas=(0.5, 0.6)) if rank else None",
}


SELDOM = (
    "gradients are not exchanged",
    "a rank's model is in evaluation",
    "a rank's optimizer steps otherwise",
)


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=pytest.mark.thorough if fault in SELDOM else ()) for fault in OF_TRAINERS],
)
@pytest.mark.parametrize("count", [2, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_fault_in_a_trainer_is_said(trainers: RankServer, tmp_path: Path, fault: str, count: int) -> None:
    lines = OF_TRAINERS[fault].strip("\n").splitlines()
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    body = "\n            ".join(line[margin:] for line in lines)
    draws = "random" in fault or "evaluation" in fault
    model, rows = ("bert(drop=0.2)", "cls_rows(128)") if draws else ("llama()", "lm_rows(128, 8, 120)")
    program = TRAINER.replace("FAULT", body).replace("MODEL", model).replace("ROWS", rows)
    program = program.replace("COUNT", str(count)).replace(
        "COLLATE", "torch.utils.data.default_collate" if draws else "pad"
    )
    ended = trainers.run(
        tmp_path,
        START + TOOLS + program,
        2,
        limit=120,
        environment={"NB2DDP_CHECKS": "200", "NB2DDP_PATIENCE": "4"},
    )
    said = "".join(rank.err for rank in ended.ranks)
    assert re.search("a check failed|nb2ddp: ERROR|RuntimeError: rank|RuntimeError: .*replicas", said), (
        ended.text
    )


@pytest.mark.parametrize(("size", "count"), [(8, 1), (2, 4)])
def test_a_gradient_that_is_zero_at_first_is_compared_soon(
    trainers: RankServer, tmp_path: Path, size: int, count: int
) -> None:
    """As that of a LoRA's A, whose B is zero: also in the second step, where a warm-up begins."""
    program = f"""
class Low(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.a, self.b = nn.Embedding(12, 8), nn.Linear(8, 4, bias=False), nn.Linear(4, 3, bias=False)
        self.e.weight.requires_grad = False
        nn.init.zeros_(self.b.weight)
    def forward(self, ids, labels=None):
        logits = self.b(self.a(self.e(ids).mean(1)))
        return {{"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}}
class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **k):
        control.should_training_stop = state.global_step == 6
rows = [{{"ids": torch.randint(0, 12, (5,)), "labels": i % 3}} for i in range(64)]
sizes = {{"per_device_train_batch_size": {size}, "gradient_accumulation_steps": {count}}}
t = Trainer(Low(), args(**sizes, max_steps=300, warmup_steps=5), train_dataset=rows, callbacks=[Stop()])
ddp.init_process_group()
ddp.wrap_trainer(t)
add = t._turns._sum
def wrong(*given):
    add(*given)
    if t.model.a.weight.grad is not None:
        t.model.a.weight.grad *= 1.5
t._turns._sum = wrong
t.train()
ddp.check_replicas(t.model)
"""
    ended = trainers.run(tmp_path, START + TOOLS + program, 2, limit=120)
    assert not any(ended.codes), ended.text
    assert "a check failed at step 3: " in ended.ranks[0].err, ended.text


@pytest.mark.parametrize(
    ("shown", "tolerance"),
    [
        pytest.param(None, 3e-3, id="nothing shown yet"),
        pytest.param(1e-7, 3e-4, id="32 bits"),
        pytest.param(2e-5, 6e-4, id="between"),
        pytest.param(8e-4, 3e-3, id="TF32"),
    ],
)
def test_a_gpu_that_rounds_little_is_held_to_it(
    monkeypatch: pytest.MonkeyPatch, shown: float | None, tolerance: float
) -> None:
    """A hook on a gradient that begins to clip was 3e-3 of it off, which TF32 may be too."""
    monkeypatch.setattr(run_state._run, "checks", {"checked": int(shown is not None), "gradients": shown})
    assert call_results._narrowed(3e-3, "gradients") == pytest.approx(5e-5)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert call_results._narrowed(3e-3, "gradients") == pytest.approx(tolerance)
