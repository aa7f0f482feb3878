"""Trainers that a notebook uses without a name: on two ranks its script is the run of one process."""

from __future__ import annotations

from pathlib import Path

from tests.support.helpers import converted
from tests.support.ranks import Ended, RankServer, collect
from tests.unit.runtime.conftest import START
from tests.unit.runtime.test_turns import apart
from tests.unit.runtime.trainer_tools import TOOLS

NOTEBOOK = """
from transformers import Trainer
model, rows, held_out = llama(), lm_rows(64), lm_rows(10)
before = Trainer(model, args(), eval_dataset=held_out, data_collator=pad).evaluate()
def fit(steps):
    return Trainer(
        model,
        args(max_steps=steps, save_strategy="steps", save_steps=2),
        train_dataset=rows,  # all
        data_collator=pad,
    ).train()
fit(4)
result = Trainer(
    model, args(max_steps=6, save_steps=3, save_strategy="steps"), train_dataset=rows, data_collator=pad
).train(resume_from_checkpoint="o/checkpoint-4")
kept["losses"] = [before["eval_loss"], result.training_loss, result.global_step]
kept["parameters"] = [p.detach().tolist() for p in model.parameters()]
model.save_pretrained("final")
note(kept=kept)
"""


def files(run: Ended) -> list[str]:
    saved = (file for name in ("o", "final") for file in (run.folder / name).rglob("*") if file.is_file())
    return sorted(str(file.relative_to(run.folder)) for file in saved)


def test_the_run_of_one_process(trainers: RankServer, tmp_path: Path) -> None:
    made = converted(TOOLS, NOTEBOOK)
    assert made.status == "converted", made.declined
    one, two = tmp_path / "one", tmp_path / "two"
    jobs = (
        trainers.start(one, START + TOOLS + NOTEBOOK, 0, limit=120),
        trainers.start(two, made.files["train_ddp.py"], 2, limit=120),
    )
    single, several = collect(one, jobs[0])[0], collect(two, jobs[1])[0]
    assert single.codes == [0], single.text
    assert several.codes == [0, 0], several.text
    assert several.ranks[0].out.count("divided over 2 processes") == 2, several.text
    expected, first = single.notes[0]["kept"], several.notes[0]["kept"]
    assert expected["losses"][2] == 6
    assert apart(expected["losses"], first["losses"], 1e-2) < 2e-6
    assert apart(expected["parameters"], first["parameters"], 0.1) < 2e-4
    printed = [
        [line for line in run.ranks[0].out.splitlines() if "nb2ddp" not in line and "_runtime" not in line]
        for run in (single, several)
    ]
    assert sum("'loss'" in line for line in printed[0]) == 6
    assert printed[0] == printed[1]
    assert not several.ranks[1].out
    assert files(single) == files(several)
    assert any("checkpoint-6" in name for name in files(several))
