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
         epochs=[entry["epoch"] for entry in trainer.state.log_history],
         keys=[sorted(entry) for entry in trainer.state.log_history])
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
PREFERENCES = """
        class Prefers(Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
                margins = inputs.pop("margin")
                scores = model(**inputs).logits[:, 0]
                chosen, rejected = scores.chunk(2)
                return -nn.functional.logsigmoid(chosen - rejected - margins).mean() + scores.var(unbiased=False)
        class DataCollatorForPreference:  # as TRL's: the chosen answers of all rows, then the rejected ones
            def __call__(self, rows):
                ids = torch.stack([row["input_ids"] for row in rows])
                ids = torch.cat([ids, ids.flip(1)])
                margins = torch.stack([row["labels"] for row in rows]).float()
                return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "margin": margins}
        trainer = Prefers(BertForSequenceClassification(config()), arguments(SHARE, max_steps=-1, num_train_epochs=2),
            train_dataset=examples(ROWS + 3), data_collator=DataCollatorForPreference())
        train(trainer)
"""
CASES = {
    "preferences, in blocks of a batch": PREFERENCES.replace("SHARE, ", ""),
    "preferences, in blocks of a divided batch": PREFERENCES.replace("SHARE", "6, 1"),
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
    "a loss that asks the model for its configuration": """
        class Asks(Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
                labels = inputs.pop("labels")
                outputs = model(**inputs)
                assert not hasattr(model, "nothing")
                model.asked, model.passing = getattr(model, "asked", 0) + 1, 1
                del model.passing
                assert not hasattr(self.model, "passing")
                assert self.model.asked == model.asked and not hasattr(self, "asked")
                assert (model.dim, model.num_parameters()) == (7, self.model.num_parameters())
                logits = outputs.logits.view(-1, model.config.num_labels)
                loss = model.criterion(logits, labels) if hasattr(model, "criterion") else logits.sum()
                return (loss, outputs) if return_outputs else loss
        model = BertForSequenceClassification(config())
        model.dim, model.criterion = 7, nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 5.0]))
        trainer = Asks(model, arguments(), train_dataset=examples(ROWS))
        train(trainer)
    """,
    "a language model whose labels Transformers counts before it shifts them": """
        from transformers import GPT2Config, GPT2LMHeadModel
        shape = dict(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2)
        model = GPT2LMHeadModel(GPT2Config(**shape, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
        trainer = Trainer(model, arguments(), train_dataset=examples(ROWS, tokens=True),
            eval_dataset=examples(7, tokens=True))
        train(trainer)
        trainer.evaluate()
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
    "rows grouped by length": """
        import inspect
        old = "group_by_length" in inspect.signature(TrainingArguments.__init__).parameters
        options = {"group_by_length": True} if old else {"train_sampling_strategy": "group_by_length"}
        rows = [{name: value[: 2 + n % 5] for name, value in row.items() if value.ndim} | {"labels": row["labels"]}
            for n, row in enumerate(examples(60))]
        for row in rows:
            row["input_ids"][0] = 1
        class Pads:
            def __call__(self, rows):
                short = [6 - len(row["input_ids"]) for row in rows]
                whole = {name: torch.stack([nn.functional.pad(row[name], (0, left)) for row, left in zip(rows, short)])
                    for name in ("input_ids", "attention_mask")}
                return whole | {"labels": torch.stack([row["labels"] for row in rows])}
        trainer = Trainer(BertForSequenceClassification(config()), arguments(6, 1, max_steps=-1, num_train_epochs=2,
            **options), train_dataset=rows, data_collator=Pads())
        train(trainer)
    """,
    "a loss of a sum and a mean, of a batch that is divided": """
        def loss_of(outputs, labels, num_items_in_batch=None):
            entropy = nn.functional.cross_entropy(outputs.logits.transpose(1, 2), labels, reduction="sum")
            return entropy / num_items_in_batch + 0.3 * outputs.logits.pow(2).mean()
        trainer = Trainer(BertForTokenClassification(config()), arguments(6, 1, max_steps=-1, num_train_epochs=2),
            train_dataset=examples(ROWS + 3, tokens=True), compute_loss_func=loss_of)
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
    assert first["keys"] == expected["keys"]
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


def test_training_goes_on_from_a_checkpoint_on_cpus(server: RankServer, tmp_path: Path) -> None:
    resumes = """
    def trainer(steps):
        torch.manual_seed(1)
        model = BertForSequenceClassification(config())
        args = arguments(save_strategy="steps", save_steps=2, max_steps=steps)
        args.optim = "adamw_torch"  # its state holds tensors
        return Trainer(model, args, train_dataset=examples(40))
    ddp.init_process_group()
    for steps, checkpoint in ((2, None), (4, "out/checkpoint-2")):
        one = trainer(steps)
        ddp.wrap_trainer(one)
        one.train(resume_from_checkpoint=checkpoint)
        ddp.check_replicas(one.model)
    figures(one)
    """
    script = START + "BATCH, STEPS = 4, 1\n" + TOOLS + textwrap.dedent(resumes)
    one, several = server.compare(tmp_path, script)
    assert one.codes == [0], one.text
    assert several.codes == [0, 0], several.text
    assert len(one.notes[0]["log"]) == 4
    assert distance(several.notes[0]["log"], one.notes[0]["log"]) < 1e-5
    assert distance(several.notes[0]["parameters"], one.notes[0]["parameters"]) < 1e-5


@pytest.mark.parametrize("kind", ["Trainer", "Weighted"])
def test_rank_0_predicts_and_saves_alone_after_the_others_have_left(
    server: RankServer, tmp_path: Path, kind: str
) -> None:
    """A Trainer that a list or a dict holds may predict where no rank is there any more, as in one process."""
    predicts = f"""
    trainer = {kind}(BertForSequenceClassification(config()), arguments(), train_dataset=examples(ROWS),
        eval_dataset=examples(9), compute_metrics=metrics)
    train(trainer)
    ddp.finish()
    trainer.evaluate()
    predicted = trainer.predict(examples(11))
    trainer.save_model("saved")
    trainer.save_state()
    note(predicted=predicted.predictions, found=predicted.metrics["test_accuracy"], rows=predicted.metrics["test_rows"],
        log=[entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry],
        saved=sorted(path.name for path in __import__("pathlib").Path("saved").iterdir()))
    """
    script = START + "BATCH, STEPS = 4, 2\nROWS = 32\n" + TOOLS + textwrap.dedent(predicts)
    one, several = server.compare(tmp_path, script)
    assert one.codes == [0], one.text
    assert several.codes == [0, 0], several.text
    for name in ("predicted", "found", "log"):
        assert distance(one.notes[0][name], several.notes[0][name]) < 1e-5
    assert several.notes[0]["rows"] == 11
    assert several.notes[0]["saved"] == one.notes[0]["saved"]


def test_a_loss_that_mixes_rows_draws_alike_where_reading_rows_has_drawn(
    server: RankServer, tmp_path: Path
) -> None:
    """Each rank reads rows of its own, and some of them draw more numbers than others."""
    mixes = """
    class Drawn(list):
        def __getitem__(self, place):
            np.random.rand(place % 3)
            return super().__getitem__(place)
    class Mixed(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            labels = inputs.pop("labels")
            order = torch.from_numpy(np.random.permutation(len(labels)))
            outputs = model(**{name: value[order] for name, value in inputs.items()})
            loss = nn.functional.cross_entropy(outputs.logits, labels[order], weight=torch.tensor([0.1, 1.0, 5.0]))
            return (loss, outputs) if return_outputs else loss
    trainer = Mixed(BertForSequenceClassification(config()), arguments(), train_dataset=Drawn(examples(32)))
    train(trainer)
    figures(trainer)
    """
    script = START + "BATCH, STEPS = 6, 1\n" + TOOLS + textwrap.dedent(mixes)
    one, several = server.compare(tmp_path, script)
    assert several.codes == [0, 0], several.text
    # a mean does not depend on the order of its rows
    assert distance(one.notes[0]["log"], several.notes[0]["log"]) < 1e-4
    assert "WARNING: a rank had drawn random numbers" not in several.ranks[0].err


def test_a_trainer_made_after_the_others_have_left_uses_one_gpu(run: Run) -> None:
    """Transformers counts two GPUs there, which one process would use through DataParallel."""
    ended = run(
        f"""BATCH, STEPS = 4, 2{TOOLS}
ddp.init_process_group()
TrainingArguments.n_gpu = property(lambda self: 2)
ddp.finish()
later = TrainingArguments("out", per_device_train_batch_size=4, use_cpu=True)
note(gpus=later.n_gpu, batch=later.train_batch_size)
"""
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.notes[0] == {"gpus": 1, "batch": 4}
