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
