"""What some ranks alone do to the training that all of them do together."""

from __future__ import annotations

import pytest

from nb2ddp.rules.process_group import one_sided
from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of

START = """\
import os, torch
rank = torch.distributed.get_rank()
model = Net()
optimizer = torch.optim.SGD(model.parameters())
solver = torch.optim.SGD(other.parameters())
"""
TRAINER = "from trl import SFTTrainer\ntrainer = SFTTrainer(model=m)\ntrainer.train()\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("if rank == 0:\n    optimizer.step()", ("optimizer.step()", "rank == 0", "step")),
        ("if rank:\n    solver.zero_grad()", ("solver.zero_grad()", "rank", "step")),
        ("if rank == 0:\n    loss = model(x)", ("model(x)", "rank == 0", "forward")),
        (
            "if state.is_world_process_zero:\n    control.should_training_stop = True",
            ("control.should_training_stop", "state.is_world_process_zero", "control"),
        ),
    ],
)
def test_what_some_ranks_do_alone(code: str, expected: tuple[str, str, str]) -> None:
    found = list(one_sided(facts_of(START, code)))
    assert [(cst_nodes.code_of(f.node), cst_nodes.code_of(f.test), f.kind) for f in found] == [expected]


ALIKE = {
    "a step of all ranks": "if rank >= 0:\n    optimizer.step()",
    "a step of something else": "if rank == 0:\n    walker.step()",
    "a call without gradients": "if rank == 0:\n    with torch.no_grad():\n        model(x)",
    "a function without gradients": "@torch.no_grad()\ndef f():\n    if rank == 0:\n        model(x)\nf()",
    "a call of a model that is not trained": "if rank == 0:\n    teacher(x)",
    "another attribute": "if rank == 0:\n    control.note = True",
    "after training": f"{TRAINER}if rank == 0:\n    optimizer.step()\n    control.should_save = True",
}


@pytest.mark.parametrize("code", ALIKE.values(), ids=ALIKE)
def test_what_is_no_fault(code: str) -> None:
    assert not list(one_sided(facts_of(START, code)))
