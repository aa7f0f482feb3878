"""The kind of training that a notebook does, in one word."""

from __future__ import annotations

import pytest

from nb2ddp.conversion.task import task_of
from tests.support.helpers import facts_of

SFT = "from trl import SFTTrainer, DPOTrainer\ntrainer = SFTTrainer(model=m)\n"
LOOP = "for batch in loader:\n    model(batch).backward()"


@pytest.mark.parametrize(
    ("cells", "task"),
    [
        ([SFT, "trainer.train()"], "sft"),
        ([SFT, "trainer.train()", "trainer = DPOTrainer(model=m)\ntrainer.train()"], "dpo"),
        ([SFT, "trainer.train()", "DPOTrainer(model=m)"], "sft"),  # which does not train
        ([SFT.replace("SFT", "CPO"), "trainer.train()"], "cpo"),
        ([SFT.replace("SFT", "ORPO"), "trainer.train()"], "orpo"),
        (["from transformers import Trainer\nTrainer(m).train()"], "trainer"),
        (
            [SFT, "from unsloth import FastVisionModel as V\nV.from_pretrained('m')", "trainer.train()"],
            "vision",
        ),
        (
            [
                SFT,
                "from unsloth.chat_templates import train_on_responses_only\n"
                "trainer = train_on_responses_only(trainer)\ntrainer.train()",
            ],
            "chat",
        ),
        (["import lightning as L\ntrainer = L.Trainer()\ntrainer.fit(model, loader)"], "lightning"),
        ([f"from accelerate import Accelerator\naccelerator = Accelerator()\n{LOOP}"], "accelerate"),
        ([LOOP], "loop"),
        ([SFT, "if False:\n    trainer.train()"], "none"),
    ],
)
def test_the_task_of_a_notebook(cells: list[str], task: str) -> None:
    assert task_of(facts_of(*cells)) == task
