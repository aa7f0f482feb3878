"""What a callback decides by the clock, the disk or a file, every rank does as rank 0 does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.ranks import Ended
from tests.unit.runtime.trainer_tools import TOOLS

Run = Callable[..., Ended]

STOPS = """
class Outside(TrainerCallback):
    '''Decides by what each rank sees at another moment.'''
    def {event}(self, args, state, control, **more):
        if state.global_step >= (3, 4)[rank]:
            control.{decision} = True
arguments = args(save_only_model=True, eval_strategy='epoch')
t = Trainer(bert(), arguments, train_dataset=cls_rows(24), eval_dataset=cls_rows(8))
t.add_callback(Outside())
go(t)
files = sorted(os.listdir("o")) if os.path.isdir("o") else []
note(step=t.state.global_step, logged=[e["step"] for e in t.state.log_history], files=files)
"""


@pytest.mark.parametrize(
    ("event", "decision", "steps"),
    [
        ("on_step_end", "should_training_stop", 3),
        ("on_log", "should_training_stop", 3),
        ("on_evaluate", "should_training_stop", 3),
        ("on_step_end", "should_save", 6),
    ],
)
def test_all_ranks_do_what_rank_0_decides(run: Run, event: str, decision: str, steps: int) -> None:
    pytest.importorskip("transformers")
    ended = run(TOOLS + STOPS.format(event=event, decision=decision))
    assert ended.codes == [0, 0], ended.text
    one, other = ended.notes
    assert one["step"] == other["step"] == steps
    assert one["logged"] == other["logged"]
    if decision == "should_save":
        assert one["files"] == ["checkpoint-3", "checkpoint-4", "checkpoint-5", "checkpoint-6"]


FOLLOWS_THE_CLOCK = """
class Outside(TrainerCallback):
    def {event}(self, args, state, control, optimizer=None, **more):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * (1 + rank)
t = Trainer(bert(), args(lr_scheduler_type="constant"), train_dataset=cls_rows(48), callbacks=[Outside()])
go(t)
note(lr=[group["lr"] for group in t.optimizer.param_groups])
"""


@pytest.mark.parametrize("event", ["on_step_begin", "on_step_end"])
def test_a_learning_rate_that_a_callback_sets_is_rank_0s(run: Run, event: str) -> None:
    pytest.importorskip("transformers")
    ended = run(TOOLS + FOLLOWS_THE_CLOCK.format(event=event))
    assert ended.codes == [0, 0], ended.text
    assert ended.notes[0]["lr"] == ended.notes[1]["lr"] == [1e-2] * len(ended.notes[0]["lr"])
    assert "2 replicas equal" in ended.ranks[0].out


LOOP = """
import torch
model = ddp.parallelize(torch.nn.Linear(4, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
def by_a_clock(step):
    optimizer.param_groups[0]["lr"] = step if rank else 0.1
for step in range(12):
    optimizer.zero_grad()
    {before}
    model(torch.randn(8, 4)).square().mean().backward()
    {after}
    optimizer.step()
ddp.check_replicas(model)
note(lr=optimizer.param_groups[0]["lr"])
"""


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_learning_rate_that_a_loop_sets_is_rank_0s(run: Run, place: str) -> None:
    ended = run(LOOP.format(**{"before": "pass", "after": "pass", place: "by_a_clock(step)"}))
    assert ended.codes == [0, 0], ended.text
    assert [notes["lr"] for notes in ended.notes] == [0.1, 0.1]
    assert "2 replicas equal" in ended.ranks[0].out
    assert "a check failed" not in ended.text


ALONE = """
import torch
model = ddp.parallelize(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train():
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
train()
with ddp.main_process_only() as is_main:
    if is_main:
        scale = torch.nn.Parameter(torch.ones(1))
        calibration = torch.optim.SGD([scale], lr=0.1)
        for _ in range(3):
            calibration.zero_grad()
            scale.square().sum().backward()
            calibration.step()
train()
ddp.check_replicas(model)
"""


def test_steps_of_rank_0_alone_are_no_steps_of_the_run(run: Run) -> None:
    ended = run(ALONE, environment={"NB2DDP_PATIENCE": "5"})
    assert ended.codes == [0, 0], ended.text
    assert "2 replicas equal, bit for bit, after 12 steps" in ended.ranks[0].out
