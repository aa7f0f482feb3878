"""Loaders that the notebook's own code asks a Trainer for: its whole batches, before, during and after training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.ranks import Ended, RankServer
from tests.unit.runtime.conftest import START
from tests.unit.runtime.test_trainers import TOOLS

Run = Callable[..., Ended]

LOOKS = """
from transformers import TrainerCallback
def batches(loader):
    return [batch["input_ids"].tolist() for batch in loader]
class Looks(TrainerCallback):
    seen = []
    def on_epoch_end(self, args, state, control, **kwargs):
        self.seen.append([len(trainer.get_train_dataloader()), batches(trainer.get_eval_dataloader())])
trainer = Trainer(BertForSequenceClassification(config()), arguments(max_steps=-1, num_train_epochs=2),
    train_dataset=examples(22), eval_dataset=examples(7), callbacks=[Looks()])
ddp.prepare_trainer(trainer)
before = [len(trainer.get_train_dataloader()), batches(trainer.get_eval_dataloader())]
train(trainer)
ddp.finish()
note(before=before, seen=Looks.seen, losses=[row["loss"] for row in trainer.state.log_history if "loss" in row],
    test=batches(trainer.get_test_dataloader(examples(5))),
    sizes=[len(batch) for batch in batches(trainer.get_train_dataloader())])
"""


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("batch", ["4, 6", "6, 1"], ids=["steps are divided", "batches are divided"])
def test_the_notebooks_own_code_gets_whole_batches(
    server: RankServer, tmp_path: Path, batch: str, ranks: int
) -> None:
    one, several = server.compare(tmp_path, f"{START}BATCH, STEPS = {batch}\n{TOOLS}\n{LOOKS}", ranks)
    assert not any((*one.codes, *several.codes)), several.text
    notes, expected = several.notes[0], one.notes[0]
    assert expected["sizes"][0] == int(batch[0])
    assert notes["losses"] == pytest.approx(expected["losses"], abs=1e-5)
    assert {name: notes[name] for name in notes if name != "losses"} == {
        name: expected[name] for name in expected if name != "losses"
    }


def test_a_training_loop_of_the_notebooks_keeps_its_share(run: Run) -> None:
    """It counts its steps by arguments that are this rank's."""
    ended = run(
        "BATCH, STEPS = 4, 2\n"
        + TOOLS
        + """
class Own(Trainer):
    def train(self):
        return [self.accelerator.backward(self.model(**batch).loss) for batch in self.get_train_dataloader()]
trainer = Own(BertForSequenceClassification(config()), arguments(), train_dataset=examples(16))
ddp.init_process_group()
ddp.prepare_trainer(trainer)
note(batches=len(trainer.train()), whole=len(trainer.get_train_dataloader()))
"""
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.notes == [{"batches": 2, "whole": 4}] * 2


GIVEN = """
from tqdm.auto import tqdm
from transformers import TrainerCallback
class Sees(TrainerCallback):
    trained, evaluated = [], []
    def on_epoch_end(self, args, state, control, train_dataloader=None, **kwargs):
        self.trained.append([len(train_dataloader), [batch["input_ids"].tolist() for batch in tqdm(train_dataloader)]])
    def on_evaluate(self, args, state, control, eval_dataloader=None, **kwargs):
        rows = len(eval_dataloader.dataset)
        self.evaluated.append([rows, len(eval_dataloader), [batch["input_ids"].tolist() for batch in eval_dataloader]])
trainer = Trainer(BertForSequenceClassification(config()),
    arguments(max_steps=-1, num_train_epochs=3, eval_strategy="epoch"),
    train_dataset=examples(22), eval_dataset=examples(7), callbacks=[Sees()])
ddp.prepare_trainer(trainer)
train(trainer)
note(trained=Sees.trained, evaluated=Sees.evaluated,
    losses=[row["loss"] for row in trainer.state.log_history if "loss" in row])
"""


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("batch", ["4, 6", "6, 1"], ids=["steps are divided", "batches are divided"])
def test_a_callback_is_given_whole_batches(
    server: RankServer, tmp_path: Path, batch: str, ranks: int
) -> None:
    """It counts on them, or decides by them, on every rank; those of a library count a rank's for a progress bar."""
    one, several = server.compare(tmp_path, f"{START}BATCH, STEPS = {batch}\n{TOOLS}\n{GIVEN}", ranks)
    assert not any((*one.codes, *several.codes)), several.text
    expected = one.notes[0]
    assert len(expected["trained"][0][1][0]) == int(batch[0])
    for notes in several.notes:
        assert notes["losses"] == pytest.approx(expected["losses"], abs=1e-5)
        assert (notes["trained"], notes["evaluated"]) == (expected["trained"], expected["evaluated"])


LOOKED_AT = """
from transformers import TrainerCallback
class Measures(TrainerCallback):
    probed, steps, norms = [], [], []
    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        self.steps.append(len(train_dataloader) // args.gradient_accumulation_steps)
    def on_epoch_end(self, args, state, control, model=None, eval_dataloader=None, train_dataloader=None, **kwargs):
        model.eval()
        self.probed.append([
            torch.gather(batch["input_ids"], 1, batch["labels"][:, None]).tolist() for batch in train_dataloader])
        for batch in trainer.get_eval_dataloader():
            loss = model(**batch).loss
            self.norms.append(torch.autograd.grad(loss, model.classifier.weight)[0].norm().item())
        model.train()
trainer = Trainer(BertForSequenceClassification(config()),
    arguments(max_steps=-1, num_train_epochs=2, eval_strategy="epoch", dataloader_num_workers=WORKERS,
        dataloader_persistent_workers=WORKERS > 0),
    train_dataset=examples(16), eval_dataset=examples(7), callbacks=[Measures()])
ddp.prepare_trainer(trainer)
train(trainer)
note(probed=Measures.probed, norms=Measures.norms, steps=Measures.steps, total=trainer.state.max_steps,
    losses=[row["eval_loss"] for row in trainer.state.log_history if "eval_loss" in row])
"""


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_callback_that_computes_is_given_whole_batches(
    server: RankServer, tmp_path: Path, workers: int
) -> None:
    """`gather` of a tensor is none of the ranks'; steps are counted with the arguments, which are a rank's."""
    one, several = server.compare(
        tmp_path, f"{START}BATCH, STEPS, WORKERS = 4, 2, {workers}\n{TOOLS}\n{LOOKED_AT}"
    )
    assert not any((*one.codes, *several.codes)), several.text
    expected = one.notes[0]
    for notes in several.notes:
        assert notes["probed"] == expected["probed"]
        assert notes["steps"] == expected["steps"]
        for name in ("norms", "losses"):
            assert notes[name] == pytest.approx(expected[name], abs=1e-6)


OWN_EVALUATION = """
class Own(Trainer):
    def evaluate(self, *args, **kwargs):
        output = self.looked_at(self.get_eval_dataloader())
        note(rows=len(output.predictions), loss=output.metrics["eval_loss"])
    def looked_at(self, loader):
        return self.evaluation_loop(loader, description="own", prediction_loss_only=False)
trainer = Own(BertForSequenceClassification(config()), arguments(), eval_dataset=examples(7))
ddp.init_process_group()
ddp.prepare_trainer(trainer)
trainer.evaluate()
"""


LOOP_IN_EVALUATE = """
class Own(Trainer):
    def evaluate(self, *args, **kwargs):
        metrics = super().evaluate(*args, **kwargs)
        self.model.eval()
        loader, hits, rows = self.get_eval_dataloader(), 0, 0
        with torch.no_grad():
            for batch in loader:
                batch = self._prepare_inputs(batch)
                hits += (self.model(**batch).logits.argmax(-1) == batch["labels"]).sum().item()
                rows += len(batch["labels"])
        note(batches=len(loader), rows=rows, hits=hits, loss=metrics["eval_loss"])
trainer = Own(BertForSequenceClassification(config()), arguments(), eval_dataset=examples(23))
ddp.init_process_group()
ddp.prepare_trainer(trainer)
trainer.evaluate()
"""


def test_a_loop_in_an_evaluation_of_the_notebooks_sees_each_row(server: RankServer, tmp_path: Path) -> None:
    one, several = server.compare(tmp_path, f"{START}BATCH, STEPS = 4, 2\n{TOOLS}\n{LOOP_IN_EVALUATE}", 2)
    assert not any((*one.codes, *several.codes)), several.text
    expected = one.notes[0]
    assert expected["rows"] == 23
    for notes in several.notes:
        assert notes["loss"] == pytest.approx(expected.pop("loss", notes["loss"]), abs=1e-6)
        assert {**notes, "loss": 0} == {**expected, "loss": 0}


def test_an_evaluation_of_the_notebooks_counts_each_row_once(server: RankServer, tmp_path: Path) -> None:
    one, several = server.compare(tmp_path, f"{START}BATCH, STEPS = 4, 2\n{TOOLS}\n{OWN_EVALUATION}", 2)
    assert not any((*one.codes, *several.codes)), several.text
    for notes in several.notes:
        assert notes["rows"] == one.notes[0]["rows"] == 7
        assert notes["loss"] == pytest.approx(one.notes[0]["loss"], abs=1e-6)
