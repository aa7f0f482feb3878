"""The ledger's rows are still what is published, and a script that is broken on purpose turns its row red."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import ROOT, SAMPLES

sys.path.insert(0, str(ROOT / "benchmarks"))

import ledger  # type: ignore[import-not-found]
import ledger_page  # type: ignore[import-not-found]

pytestmark = pytest.mark.launch

SLICE = [("alpaca_sft", 3), pytest.param("peft_loop", 2, marks=pytest.mark.thorough)]
BROKEN = ROOT / "tests" / "notebooks" / "classification.ipynb"
TRAIN = "ddp_model = ddp.wrap_trainer(trainer)"
NOT_AVERAGED = f"""\
{TRAIN}
from transformers import TrainerCallback
class Drifts(TrainerCallback):
    def on_train_end(self, args, state, control, **kwargs):
        if rank:
            next(p for p in trainer.model.parameters() if p.requires_grad).data.add_(1.0)
trainer.add_callback(Drifts())
#"""
OTHER_SEED = f"""\
trainer.train_dataset = trainer.train_dataset.shuffle(seed=rank)
{TRAIN}
#"""
NOT_GATED = f"""\
model.save_pretrained("my_classifier")
{TRAIN}
#"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[ledger.Case], ledger.Alone]:
    """A notebook's run in one process is made once."""
    made: dict[Path, ledger.Alone] = {}

    def get(case: ledger.Case) -> ledger.Alone:
        if case.notebook not in made:
            made[case.notebook] = ledger.Alone(case, tmp_path_factory.mktemp(case.label))
        return made[case.notebook]

    return get


@pytest.mark.parametrize(("sample", "ranks"), SLICE)
def test_a_row_is_no_worse_than_published(
    sample: str, ranks: int, tmp_path: Path, alone: Callable[[ledger.Case], ledger.Alone]
) -> None:
    case = ledger.Case(SAMPLES / f"{sample}.ipynb", "newest", ranks)
    row = ledger.measure(case, tmp_path, controls=False, alone=alone(case))
    published, _ = ledger_page.load(ROOT / "docs" / "ledger")
    assert not ledger.worse(row, published[row.name])
    assert row.loss_difference is not None
    assert row.loss_difference <= ledger.CLOSE
    assert (row.samples_once, row.prints_same, row.notes) == (True, True, {})


@pytest.mark.parametrize(
    ("broken", "verdict", "reason"),
    [
        pytest.param(NOT_AVERAGED, "failed", "the ranks have trained different models", id="gradients"),
        pytest.param(OTHER_SEED, "different", "loss of step 1", id="seed", marks=pytest.mark.thorough),
        pytest.param(NOT_GATED, "different", "another rank than 0 writes my_classifier/", id="save"),
    ],
)
def test_a_broken_script_turns_its_row_red(
    broken: str,
    verdict: str,
    reason: str,
    tmp_path: Path,
    alone: Callable[[ledger.Case], ledger.Alone],
) -> None:
    case = ledger.Case(BROKEN, "newest", 2)
    one = alone(case)
    script = one.conversion.files["train_ddp.py"]
    assert script.count(TRAIN) == 1
    row = ledger.measure(case, tmp_path, controls=False, script=script.replace(TRAIN, broken), alone=one)
    assert (row.verdict, reason in row.reason) == (verdict, True), row
    published, _ = ledger_page.load(ROOT / "docs" / "ledger")
    assert ledger.worse(row, published[row.name])


@pytest.mark.thorough
def test_another_evaluation_turns_a_row_red(tmp_path: Path) -> None:
    """The training is the same: only what is evaluated lacks a row."""
    case = ledger.Case(ROOT / "benchmarks" / "programs" / "trainer_reward_evaluated.py", "newest", 2)
    one = ledger.Alone(case, tmp_path)
    script = one.conversion.files["train_ddp.py"]
    broken = script.replace(TRAIN, f"trainer.eval_dataset = trainer.eval_dataset.select(range(8))\n{TRAIN}")
    assert broken != script
    row = ledger.measure(case, tmp_path, controls=False, script=broken, alone=one)
    assert row.verdict == "different", row
    assert row.reason.startswith("evaluation 1: eval_")
