"""What a Trainer's micro-batch reads of those before it in its step."""

from __future__ import annotations

import pytest

from nb2ddp.analysis.micro_batches import earlier_reads
from tests.support.helpers import facts_of

LOSS = """\
from transformers import Trainer
from collections import deque
seen, rows = deque(maxlen=8), {{}}
class Mine(Trainer):
    def {method}(self, model, inputs, **options):
        loss = super().{method}(model, inputs, **options)
        {body}
        return loss
t = Mine(model)
t.train()
"""
READS = {
    "a gradient": ("training_step", "print(model.head.weight.grad.norm())", ["the gradients"]),
    "a norm that clips": (
        "training_step",
        "self.accelerator.clip_grad_norm_(model.parameters(), 1)",
        ["the gradients"],
    ),
    "a queue": ("compute_loss", "seen.append(loss.item()); loss = loss * sum(seen)", ["`seen`"]),
    "an item that is taken": ("compute_loss", "loss = loss * self.waiting.pop()", ["`self.waiting`"]),
    "a slot that is set, then read": (
        "compute_loss",
        "loss = loss + rows.get(1, 0); rows[1] = 2",
        ["`rows`"],
    ),
    "in another function": (
        "compute_loss",
        "loss = self.more(loss)\n        return loss\n    def more(self, x):\n        self.n += x\n        self.n + 1",
        ["`self.n`"],
    ),
}
LEFT = {
    "a gradient that is asked for": ("compute_loss", "g = torch.autograd.grad(loss, inputs)"),
    "gradients that are dropped": ("training_step", "model.head.weight.grad = None"),
    "a counter": ("compute_loss", "self.n += 1\n        if self.n % 5 == 0: print(self.n)"),
    "what is set before": ("compute_loss", "self.last = loss.item(); print(self.last)"),
    "what is made once": ("compute_loss", "if self.w is None: self.w = 2\n        loss = loss * self.w"),
    "a moving average": ("compute_loss", "self.mean = 0.9 * self.mean + 0.1 * loss.item()"),
    "figures that only grow": ("compute_loss", "self.figures['loss'].append(loss.item())"),
    "a name of its own": ("compute_loss", "rows = []; rows.append(loss); loss = sum(rows)"),
}


@pytest.mark.parametrize("case", READS)
def test_what_is_read_of_earlier_ones(case: str) -> None:
    method, body, expected = READS[case]
    found = earlier_reads(facts_of(LOSS.format(method=method, body=body)))
    assert [what for _, what in found] == expected


@pytest.mark.parametrize("case", LEFT)
def test_what_does_not_depend_on_earlier_ones(case: str) -> None:
    method, body = LEFT[case]
    assert earlier_reads(facts_of(LOSS.format(method=method, body=body))) == ()


@pytest.mark.parametrize(
    ("made", "found"),
    [
        ("loss_of = Focal(2)\n        return loss_of(loss)", []),
        ("return Focal(2)(loss)", []),
        ("if self.kept is None: self.kept = Focal(2)\n        return self.kept(loss)", ["`self.seen`"]),
        ("loss_of = Focal(2)\n        return rows.setdefault(0, loss_of)(loss)", ["`self.seen`"]),
    ],
)
def test_an_object_of_one_micro_batch_holds_nothing_of_earlier_ones(made: str, found: list[str]) -> None:
    code = """
class Focal:
    def __init__(self, gamma): self.seen = [gamma]
    def forward(self, loss):
        self.seen.append(loss)
        return loss * sum(self.seen)
"""
    asked = earlier_reads(facts_of(code + LOSS.format(method="compute_loss", body=made)))
    assert [what for _, what in asked if "self" in what] == found


def test_a_callback_between_micro_batches_reads_gradients() -> None:
    code = """
class Looks(TrainerCallback):
    def on_substep_end(self, args, state, control, model=None, **options):
        print(model.w.grad)
"""
    assert [what for _, what in earlier_reads(facts_of(code))] == ["the gradients"]
