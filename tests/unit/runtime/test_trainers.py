"""A transformers.Trainer on several ranks: figures of one process, in training and in evaluation."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.ranks import Ended, RankServer
from tests.unit.runtime.conftest import START
from tests.unit.runtime.test_parallelize import distance

Run = Callable[..., Ended]

TOOLS = """
import torch
import numpy as np
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification
from transformers import Trainer, TrainingArguments
torch.manual_seed(0)
def config(labels=3):
    return BertConfig(vocab_size=20, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_labels=labels, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
def examples(count, tokens=False):
    ids = torch.randint(0, 20, (count, 6), generator=torch.Generator().manual_seed(count))
    labels = ids % 3 if tokens else ids.sum(1) % 3
    if tokens:
        for row in range(count):
            labels[row, 1 + row % 5 :] = -100
    return [{"input_ids": i, "attention_mask": torch.ones_like(i), "labels": l} for i, l in zip(ids, labels)]
def arguments(batch=BATCH, steps=STEPS, **options):
    batch, steps = ddp.share_batch(batch, steps) if world_size > 1 else (batch, steps)
    return TrainingArguments("out", per_device_train_batch_size=batch, gradient_accumulation_steps=steps,
        per_device_eval_batch_size=4, report_to=[], use_cpu=True, disable_tqdm=True,
        optim="sgd", lr_scheduler_type="constant",
        **{"save_strategy": "no", "max_steps": 3, "learning_rate": 0.01, "logging_steps": 1, **options})
class Weighted(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = nn.functional.cross_entropy(outputs.logits, labels, weight=torch.tensor([0.1, 1.0, 5.0]))
        return (loss, outputs) if return_outputs else loss
def metrics(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean()),
            "rows": len(prediction.label_ids), "order": prediction.predictions.sum()}
def figures(trainer):
    keys = ("loss", "eval_loss", "eval_accuracy", "eval_rows", "eval_order", "eval_wide_loss", "eval_deep_loss",
            "size", "eval_size")
    note(log=[entry[key] for entry in trainer.state.log_history for key in keys if key in entry],
         parameters=[p.detach() for p in trainer.model.parameters()], best=trainer.state.best_metric,
         best_step=trainer.state.best_global_step, seen=getattr(trainer, "seen", []),
         epochs=[entry["epoch"] for entry in trainer.state.log_history])
def train(trainer):
    ddp.init_process_group()
    ddp.wrap_trainer(trainer)
    trainer.train()
    ddp.check_replicas(trainer.model)
"""

STORES_FIGURES = """
from collections import defaultdict
class ORPOTrainer(Trainer):  # as TRL's: what it gathers is stored on rank 0
    def get_batch_loss_metrics(self, model, batch, train_eval="train"):
        loss, outputs = super().compute_loss(model, batch, return_outputs=True)
        sizes = outputs.logits.detach().flatten(1).pow(2).mean(1)
        return loss, {"size": self.accelerator.gather_for_metrics(sizes).mean().item()}
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, figures = self.get_batch_loss_metrics(model, inputs)
        if self.accelerator.is_main_process:
            self.store_metrics(figures, train_eval="train")
        return loss
    def prediction_step(self, model, inputs, *args, **kwargs):
        with torch.no_grad():
            loss, figures = self.get_batch_loss_metrics(model, inputs, train_eval="eval")
        if self.accelerator.is_main_process:
            self.store_metrics(figures, train_eval="eval")
        return loss.detach(), None, None
    def store_metrics(self, figures, train_eval="train"):
        for key, value in figures.items():
            self._stored_metrics[train_eval][key].append(value)
    def log(self, logs, start_time=None):
        mode = "train" if "loss" in logs else "eval"
        for key, each in self._stored_metrics[mode].items():
            logs[key if mode == "train" else f"eval_{key}"] = sum(each) / len(each)
        del self._stored_metrics[mode]
        super().log(logs, start_time)
ORPOTrainer.compute_loss.__module__ = ORPOTrainer.__module__ = "trl.trainer"
ORPOTrainer._stored_metrics = defaultdict(lambda: defaultdict(list))
"""

KEEPS_FIGURES = """
        class Keeping(Trainer):
            seen = []
            def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
                loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
                self.seen.append(outputs.logits.pow(2).mean().item())
                self.log({"size": self.seen[-1]})
                return (loss, outputs) if return_outputs else loss
        trainer = Keeping(BertForSequenceClassification(config()), arguments(SHARE), train_dataset=examples(ROWS + 2),
            eval_dataset=examples(7))
        train(trainer)
        trainer.evaluate()
"""
CASES = {
    "a loss that keeps figures": KEEPS_FIGURES.replace("SHARE", ""),
    "a loss that keeps figures of a divided batch": KEEPS_FIGURES.replace("SHARE", "6, 1"),
    "an incomplete last batch": """
        trainer = Trainer(BertForTokenClassification(config()), arguments(max_steps=-1, num_train_epochs=2),
            train_dataset=examples(ROWS + 5, tokens=True))
        train(trainer)
    """,
    "losses of two steps in a line, an incomplete last step": """
        trainer = Trainer(BertForSequenceClassification(config()), arguments(max_steps=-1, num_train_epochs=2,
            logging_steps=2), train_dataset=examples(3 * BATCH * STEPS + BATCH))
        train(trainer)
    """,
    "parameters unfrozen later": """
        from transformers import TrainerCallback
        class Unfreeze(TrainerCallback):
            def on_step_end(self, args, state, control, model=None, **kwargs):
                for parameter in model.parameters():
                    parameter.requires_grad = True
        model = BertForSequenceClassification(config())
        for parameter in model.bert.parameters():
            parameter.requires_grad = False
        trainer = Trainer(model, arguments(max_grad_norm=0.05, learning_rate=0.5), train_dataset=examples(ROWS),
            callbacks=[Unfreeze()])
        train(trainer)
    """,
    "classification": """
        trainer = Trainer(BertForSequenceClassification(config()), arguments(), train_dataset=examples(ROWS))
        train(trainer)
    """,
    "re-entrant checkpoints": """
        trainer = Trainer(BertForSequenceClassification(config()), arguments(gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": True}), train_dataset=examples(ROWS))
        train(trainer)
    """,
    "re-entrant checkpoints of two forward passes": """
        class Twice(Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
                loss = (model(**inputs).logits + model(**inputs).logits.flip(1)).pow(2).mean()
                return (loss, {}) if return_outputs else loss
        trainer = Twice(BertForSequenceClassification(config()), arguments(gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": True}), train_dataset=examples(ROWS))
        train(trainer)
    """,
    "a last batch that is dropped": """
        trainer = Trainer(BertForTokenClassification(config()), arguments(max_steps=-1, num_train_epochs=2,
            dataloader_drop_last=True), train_dataset=examples(ROWS + 6, tokens=True))
        train(trainer)
    """,
    "token classification": """
        trainer = Trainer(BertForTokenClassification(config()), arguments(), train_dataset=examples(ROWS, tokens=True),
            eval_dataset=examples(7, tokens=True))
        train(trainer)
        trainer.evaluate()
    """,
    "label smoothing": """
        trainer = Trainer(BertForTokenClassification(config()), arguments(label_smoothing_factor=0.2),
            train_dataset=examples(ROWS, tokens=True))
        train(trainer)
    """,
    "class weights": """
        trainer = Weighted(BertForSequenceClassification(config()), arguments(), train_dataset=examples(ROWS))
        train(trainer)
    """,
    "a batch of tokens is divided": """
        trainer = Trainer(BertForTokenClassification(config()), arguments(6, 1),
            train_dataset=examples(ROWS, tokens=True))
        train(trainer)
    """,
    "arguments of two batches that have one share": """
        wide, deep = arguments(BATCH * STEPS, 1), arguments()
        first = Weighted(BertForSequenceClassification(config()), wide, train_dataset=examples(ROWS))
        train(first)
        trainer = Weighted(first.model, deep, train_dataset=examples(ROWS))
        train(trainer)
        trainer.state.log_history += first.state.log_history
        trainer.save_model("saved")
        note(predicted=[torch.load("saved/training_args.bin", weights_only=False).per_device_train_batch_size * 0.0])
    """,
    "a loss over tokens and rows, an incomplete last batch": """
        class ORPOTrainer(Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                marks = inputs.pop("marks")
                logits = model(**inputs).logits
                rows = logits.pow(2).mean((1, 2))
                self.accelerator.gather_for_metrics(rows.detach())
                return nn.functional.cross_entropy(logits.flatten(0, 1), marks.flatten()) + rows.mean()
        ORPOTrainer.compute_loss.__module__ = ORPOTrainer.__module__ = "trl.trainer"
        rows = [{"marks": row.pop("labels"), **row} for row in examples(ROWS + 5, tokens=True)]
        trainer = ORPOTrainer(BertForTokenClassification(config()),
            arguments(max_steps=-1, num_train_epochs=2, remove_unused_columns=False), train_dataset=rows)
        trainer.model_accepts_loss_kwargs = False  # as ORPO's and CPO's
        train(trainer)
    """,
    "evaluation and training that store figures, incomplete last batches": """
        trainer = ORPOTrainer(BertForSequenceClassification(config()), arguments(max_steps=-1, num_train_epochs=2),
            train_dataset=examples(ROWS + 5), eval_dataset=examples(7))
        trainer.model_accepts_loss_kwargs = False  # as ORPO's and CPO's
        train(trainer)
        trainer.evaluate()
    """,
    "a smoothed batch is divided": """
        trainer = Trainer(BertForTokenClassification(config()), arguments(6, 1, label_smoothing_factor=0.2),
            train_dataset=examples(ROWS, tokens=True))
        train(trainer)
    """,
    "a weighted batch is divided": """
        trainer = Weighted(BertForSequenceClassification(config()), arguments(6, 1), train_dataset=examples(ROWS))
        train(trainer)
    """,
    "a language model": """
        from transformers import LlamaConfig, LlamaForCausalLM
        model = LlamaForCausalLM(LlamaConfig(vocab_size=20, hidden_size=8, intermediate_size=16, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=2))
        trainer = Trainer(model, arguments(), train_dataset=examples(ROWS, tokens=True),
            eval_dataset=examples(7, tokens=True))
        train(trainer)
        trainer.evaluate()
    """,
    "evaluation before and after": """
        trainer = Trainer(BertForSequenceClassification(config()), arguments(), train_dataset=examples(ROWS),
            eval_dataset=examples(11), compute_metrics=metrics)
        ddp.init_process_group()
        ddp.prepare_trainer(trainer)
        trainer.evaluate()
        train(trainer)
        trainer.evaluate()
        trainer.evaluate(examples(5))
        note(predicted=trainer.predict(examples(9)).predictions)
    """,
    "resumed from a checkpoint": """
        first = Trainer(BertForSequenceClassification(config()), arguments(save_strategy="steps", save_steps=2),
            train_dataset=examples(ROWS))
        train(first)
        trainer = Trainer(BertForSequenceClassification(config()), arguments(max_steps=5), train_dataset=examples(ROWS))
        ddp.wrap_trainer(trainer)
        trainer.train(resume_from_checkpoint="out/checkpoint-2")
        ddp.check_replicas(trainer.model)
    """,
    "a saved model is loaded again": """
        def fit():
            trainer = Trainer(BertForSequenceClassification(config()), arguments(), train_dataset=examples(ROWS))
            train(trainer)
            if rank == 0:
                import time
                write = trainer._save
                trainer._save = lambda *args, **kwargs: (time.sleep(2), write(*args, **kwargs))
            trainer.save_model("final")
            again = BertForSequenceClassification.from_pretrained("final")
            note(predicted=[p.detach().sum() for p in again.parameters()])
            return trainer
        trainer = fit()
    """,
    "few rows to evaluate": """
        trainer = Trainer(BertForSequenceClassification(config()), arguments(), train_dataset=examples(ROWS),
            eval_dataset=examples(3), compute_metrics=metrics)
        train(trainer)
        trainer.evaluate()
        trainer.evaluate(examples(1))
    """,
    "two evaluation sets": """
        trainer = Trainer(BertForSequenceClassification(config()), arguments(eval_strategy="steps", eval_steps=1),
            train_dataset=examples(ROWS), eval_dataset={"wide": examples(9), "deep": examples(6)})
        train(trainer)
    """,
    "the best checkpoint": """
        trainer = Trainer(BertForSequenceClassification(config()), arguments(eval_strategy="steps", eval_steps=1,
            save_strategy="steps", save_steps=1, load_best_model_at_end=True, metric_for_best_model="accuracy",
            max_steps=4), train_dataset=examples(ROWS), eval_dataset=examples(10), compute_metrics=metrics)
        train(trainer)
    """,
}
THOROUGH = {True: [pytest.mark.thorough], False: []}
ON_THREE = ("evaluation before and after", "few rows to evaluate", "token classification")


def check_as_in_one_process(
    server: RankServer, folder: Path, program: str, ranks: int, batch: tuple[int, int], rows: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a program in one process and on some ranks, compare the figures, and return them."""
    program = textwrap.dedent(program).replace("ROWS", str(rows))
    script = f"{START}BATCH, STEPS = {batch}\n{TOOLS}\n{STORES_FIGURES}\n{program}\nfigures(trainer)\n"
    one, several = server.compare(folder, script, ranks)
    assert one.codes == [0], one.text
    assert not any(several.codes), several.text
    expected, first, *others = one.notes[0], *several.notes
    assert expected["log"]
    for other in others:
        assert other["parameters"] == first["parameters"]
        assert (other["best"], other["best_step"]) == (first["best"], first["best_step"])
    assert first["best_step"] == expected["best_step"]
    assert distance(expected["parameters"], first["parameters"]) < 1e-5, several.text
    assert distance(expected["log"], first["log"]) < 1e-4, (expected["log"], first["log"])
    assert len(expected["seen"]) == len(first["seen"])
    assert distance(expected["seen"], first["seen"]) < 1e-4
    return expected, first


@pytest.mark.parametrize(
    ("case", "ranks"),
    [
        pytest.param(case, ranks, marks=[*THOROUGH[ranks == 3 and case not in ON_THREE]])
        for case in CASES
        for ranks in (2, 3)
    ],
)
def test_as_in_one_process(server: RankServer, tmp_path: Path, case: str, ranks: int) -> None:
    batch, rows = ((6, 3), 72) if ranks == 3 else ((4, 2), 32)  # an epoch of whole steps
    expected, first = check_as_in_one_process(server, tmp_path, CASES[case], ranks, batch, rows)
    assert distance(expected.get("predicted", []), first.get("predicted", [])) < 1e-5
    assert distance(expected["epochs"], first["epochs"]) < 1e-6
    if "evaluat" in case:
        assert distance(expected["log"], first["log"]) < 1e-5


WEIGHTED_UNEVEN = (
    CASES["class weights"]
    .replace("ROWS)", "ROWS + 5)")
    .replace("arguments()", "arguments(max_steps=-1, num_train_epochs=2)")
)


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(WEIGHTED_UNEVEN, id="class weights"),
        *(
            pytest.param(CASES[case], id=case, marks=pytest.mark.thorough)
            for case in ("a loss that keeps figures", "an incomplete last batch", "label smoothing")
        ),
    ],
)
def test_two_micro_batches_on_four_ranks(server: RankServer, tmp_path: Path, program: str) -> None:
    """Each of the two is divided over two ranks; an epoch's last step has 5 rows."""
    check_as_in_one_process(server, tmp_path, program, 4, (8, 2), 32)


def test_different_training_data_is_refused(run: Run) -> None:
    ended = run(
        "BATCH, STEPS = 4, 2\n"
        + TOOLS
        + "\ndata = examples(24)\ndata[-1]['input_ids'] = data[-1]['input_ids'] + rank\n"
        "trainer = Trainer(BertForSequenceClassification(config()), arguments(), train_dataset=data)\ntrain(trainer)\n"
    )
    assert ended.codes == [1, 1], ended.text
    assert (
        "training row 23 is not the same on ranks 1 and 0. Every rank must make the same data: seed what"
        in (ended.ranks[0].err)
    )
    longer = run(
        "BATCH, STEPS = 4, 2\n"
        + TOOLS
        + "\ntrainer = Trainer(BertForSequenceClassification(config()), arguments(),"
        " train_dataset=examples(24 + rank))\ntrain(trainer)\n"
    )
    assert "rank 1 has 25 training rows, rank 0 24. Every rank must" in longer.ranks[0].err, longer.text


def test_what_training_gathers_after_an_evaluation_is_of_all_ranks(run: Run) -> None:
    """The rounds of the evaluation say nothing of it: TRL gathers the figures of training so."""
    ended = run(
        "BATCH, STEPS = 4, 2\n"
        + TOOLS
        + "\ntrainer = Trainer(BertForSequenceClassification(config()), arguments(), train_dataset=examples(8))\n"
        "train(trainer)\ntrainer.evaluate(examples(5))\ntrainer.model.train()\n"
        "note(gathered=trainer.accelerator.gather_for_metrics(torch.tensor(rank + 1.0)).tolist())\n"
    )
    assert ended.codes == [0, 0], ended.text
    assert [notes["gathered"] for notes in ended.notes] == [[1.0, 2.0], [1.0, 2.0]]


def test_a_figure_of_each_batch_is_gathered_once_from_each_rank(run: Run) -> None:
    """TRL gathers its figures of an evaluation so. Of three batches, the last round holds one."""
    ended = run(
        """
        import torch
        ddp.init_process_group()
        batches = ddp._WholeBatches([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]], all_of_them=False)
        gathered = []
        for batches.round, batch in enumerate(batches):
            gathered.append(batches.gather(torch.tensor(batch[0] + 10.0 * rank)).tolist())
        note(gathered=gathered)
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert [notes["gathered"] for notes in ended.notes] == [[[0.0, 14.0], [8.0]]] * 2


def test_a_trainer_that_knows_of_one_process_is_refused(run: Run) -> None:
    ended = run(
        "BATCH, STEPS = 4, 2\n"
        + TOOLS
        + "\ntrainer = ddp.as_one_process(lambda: Trainer(BertForSequenceClassification(config()),"
        " TrainingArguments('out', use_cpu=True, report_to=[]), train_dataset=examples(8)))\ntrain(trainer)\n"
    )
    assert ended.codes == [1, 1], ended.text
    assert "RuntimeError: the Trainer knows of 1 of 2 processes" in ended.ranks[0].err


@pytest.mark.parametrize(("batch", "steps", "says"), [(4, 1, True), (2, 2, False)])
def test_a_part_of_a_batch_in_16_bits_is_said_to_round_otherwise(
    run: Run, batch: int, steps: int, says: bool
) -> None:
    ended = run(
        f"BATCH, STEPS = {batch}, {steps}\n"
        + TOOLS
        + "trainer = Trainer(BertForSequenceClassification(config()), arguments(bf16=True),"
        " train_dataset=examples(24))\ntrain(trainer)\n"
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.ranks[0].out.count("in 16 bits that rounds otherwise") == says
    assert "in 16 bits" not in ended.ranks[1].out


def test_a_batch_norm_in_a_trainer_is_said(run: Run) -> None:
    ended = run(
        "BATCH, STEPS = 4, 1\n"
        + TOOLS
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(6), nn.Linear(6, 3)
    def forward(self, input_ids, attention_mask=None, labels=None):
        logits = self.out(self.norm(input_ids.float()))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}
trainer = Trainer(Net(), arguments(), train_dataset=examples(24))
train(trainer)
"""
    )
    assert ended.codes == [0, 0], ended.text
    assert "WARNING: a batch norm takes its running statistics from each rank's part" in ended.ranks[0].err


DROPOUT = """
options = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}
model = BertForSequenceClassification(BertConfig(**{**config().to_dict(), **options}))
train(KIND(model, arguments(), train_dataset=examples(32)))
"""


def test_a_trainer_that_divides_micro_batches_has_the_dropout_of_one_process(
    server: RankServer, tmp_path: Path
) -> None:
    case = DROPOUT.replace("KIND", "Weighted") + "figures(trainer)\n"
    case = case.replace("train(W", "train(trainer := W")
    one, several = server.compare(tmp_path, f"{START}BATCH, STEPS = 4, 1\n{TOOLS}{case}", 2)
    assert not any(several.codes), several.text
    assert distance(one.notes[0]["log"], several.notes[0]["log"]) < 1e-4
    assert "WARNING: the model has dropout" not in several.ranks[0].err


def test_a_trainer_whose_ranks_take_micro_batches_in_turns_says_that_it_has_dropout(run: Run) -> None:
    ended = run(f"BATCH, STEPS = 4, 2\n{TOOLS}{DROPOUT.replace('KIND', 'Trainer')}")
    assert not any(ended.codes), ended.text
    assert "WARNING: the model has dropout (bert.embeddings.dropout)" in ended.ranks[0].err
    assert "WARNING" not in ended.ranks[1].err


NOTES_FIGURES = """
from collections import defaultdict
class SFTTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        self._metrics["train"]["size"].append(outputs.logits.pow(2).mean().item())
        return (loss, outputs) if return_outputs else loss
    def log(self, logs, *args):
        super().log({**logs, **{key: sum(each) / len(each) for key, each in self._metrics["train"].items()}}, *args)
        self._metrics["train"].clear()
SFTTrainer.compute_loss.__module__ = SFTTrainer.__module__ = "trl.trainer"  # as TRL's notes and logs
SFTTrainer._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
"""
LOGS_OF_ITS_OWN = """
from transformers import TrainerCallback
class Logs(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        BLOCK
            trainer.log({"own": 1.0, "loss": 1.0})
trainer = KIND(BertForSequenceClassification(config()), arguments(), train_dataset=examples(32))
trainer.add_callback(Logs())
trainer.model_accepts_loss_kwargs = False
train(trainer)
note(sizes=[row["size"] for row in trainer.state.log_history if "size" in row],
     own=[row["step"] for row in trainer.state.log_history if "own" in row])
"""


IN_A_BLOCK = """with ddp.main_process_only() as is_main:
          if is_main:"""


@pytest.mark.parametrize(
    ("kind", "block", "ranks"),
    [
        pytest.param("SFTTrainer", "if state.is_world_process_zero:", 2, id="a condition, 2 ranks"),
        pytest.param("SFTTrainer", "if state.is_world_process_zero:", 3, id="a condition, 3 ranks"),
        pytest.param("SFTTrainer", IN_A_BLOCK, 2, id="a block"),
        pytest.param("ORPOTrainer", IN_A_BLOCK, 2, id="a block, figures that are stored"),
    ],
)
def test_a_log_of_rank_0_alone_leaves_the_figures_of_all_ranks_whole(
    server: RankServer, tmp_path: Path, kind: str, block: str, ranks: int
) -> None:
    batch = (6, 3) if ranks == 3 else (4, 2)
    logs = LOGS_OF_ITS_OWN.replace("KIND", kind).replace("BLOCK", block)
    script = f"{START}BATCH, STEPS = {batch}\n{TOOLS}\n{STORES_FIGURES}\n{NOTES_FIGURES}\n{logs}"
    one, several = server.compare(tmp_path, script, ranks, environment={"NB2DDP_PATIENCE": "5"})
    assert not any((*one.codes, *several.codes)), several.text
    expected, first = one.notes[0], several.notes[0]
    assert first["own"] == expected["own"] == [1, 2, 3]
    assert len(first["sizes"]) == 3
    assert distance(expected["sizes"], first["sizes"]) < 1e-5
    assert (
        several.ranks[0].out.count("may run on one rank alone; the averaged figures follow in the next row")
        == 1
    )
