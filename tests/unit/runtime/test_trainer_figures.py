"""What a Trainer of TRL stores, gathers and logs of its own, on several ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.ranks import Ended, RankServer
from tests.unit.runtime.conftest import START
from tests.unit.runtime.test_parallelize import distance
from tests.unit.runtime.test_trainers import STORES_FIGURES, TOOLS

Run = Callable[..., Ended]


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


COUNTS = """
from collections import Counter
calls = {"all": 0}
class Counts(Trainer):
    sizes, labels = {"rows": []}, Counter()
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        self.sizes["rows"].append(len(inputs["labels"]))
        self.labels.update(inputs["labels"].tolist())
        calls["all"] += 1
        self.noise = torch.randn(1).item()
        return super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)
model = BertForSequenceClassification(config())
trainer = Counts(model, arguments(), train_dataset=examples(32))
train(trainer)
note(calls=[calls["all"], len(trainer.sizes["rows"])], rows=sum(trainer.sizes["rows"]), noise=trainer.noise,
    labels=sum(trainer.labels.values()), steps=trainer.state.max_steps)
"""


def test_a_trial_of_a_loss_leaves_nothing_that_the_notebook_counts(
    server: RankServer, tmp_path: Path
) -> None:
    """Whether a loss is a mean or a sum is tried once: what it counts in containers, and random numbers, are undone."""
    one, several = server.compare(tmp_path, f"{START}BATCH, STEPS = 4, 2\n{TOOLS}\n{COUNTS}")
    assert not any((*one.codes, *several.codes)), several.text
    expected = one.notes[0]
    assert expected["calls"] == [2 * expected["steps"]] * 2
    for notes in several.notes:
        assert notes == {**expected, "noise": notes["noise"]}


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
    says = "is called from code that asks for its rank: it logs its own values only; the Trainer's averages come with"
    assert several.ranks[0].out.count(f"{says} its next log") == 1


WRITES = """
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration
small = T5Config(vocab_size=20, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2, dropout_rate=0.0,
    pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
model = T5ForConditionalGeneration(small)
def of_lengths(count):
    return [{**row, "labels": row["input_ids"][: 2 + n % 4]} for n, row in enumerate(examples(count))]
def collate(rows):
    labels = nn.utils.rnn.pad_sequence([row["labels"] for row in rows], batch_first=True, padding_value=-100)
    return {**{k: torch.stack([row[k] for row in rows]) for k in ("input_ids", "attention_mask")}, "labels": labels}
def written(prediction):
    return {"rows": len(prediction.predictions), "wide": prediction.predictions.shape[1],
            "order": int((prediction.predictions * np.arange(len(prediction.predictions))[:, None]).sum())}
TrainingArguments = Seq2SeqTrainingArguments
options = dict(predict_with_generate=True, generation_max_length=8,
    eval_strategy="steps", eval_steps=2, learning_rate=0.3)
trainer = Seq2SeqTrainer(model, arguments(**options), train_dataset=of_lengths(12), eval_dataset=of_lengths(ROWS),
    data_collator=collate, compute_metrics=written)
class Tokens:
    pad_token_id = 0
trainer.processing_class = Tokens()
train(trainer)
last = trainer.predict(of_lengths(7), max_length=9)
note(log=[[row[f"eval_{key}"] for key in ("loss", "rows", "wide", "order")] for row in trainer.state.log_history
     if "eval_loss" in row], last=[last.metrics["test_loss"], *last.predictions.shape, int(last.predictions.sum())])
"""


@pytest.mark.parametrize("rows", [14, 9])
def test_what_a_seq2seq_trainer_writes_in_an_evaluation_is_one_processs(
    server: RankServer, tmp_path: Path, rows: int
) -> None:
    """Its evaluations gather the texts by another function, of which a short last batch has fewer rows."""
    script = START + "BATCH, STEPS = 4, 1\n" + TOOLS + WRITES.replace("ROWS", str(rows))
    one, several = server.compare(tmp_path, script)
    assert several.codes == [0, 0], several.text
    assert one.codes == [0], one.text
    single, ranks = one.notes[0], several.notes
    assert {row[1] for row in single["log"]} == {rows}
    for notes in ranks:
        assert distance(notes["log"], single["log"]) < 1e-5
        assert distance(notes["last"], single["last"]) < 1e-5


def test_a_seq2seq_trainer_predicts_on_rank_0_alone_as_in_one_process(
    server: RankServer, tmp_path: Path
) -> None:
    """The loss of a short last batch counts as of a full one there, too."""
    alone = WRITES.replace("ROWS", "9").replace("last = ", "ddp.finish()\nlast = ")
    one, several = server.compare(tmp_path, START + "BATCH, STEPS = 4, 1\n" + TOOLS + alone)
    assert several.codes == [0, 0], several.text
    assert distance(one.notes[0]["last"], several.notes[0]["last"]) < 1e-5


TRAINS = """
trainer = KIND(BertForSequenceClassification(config()), arguments(OPTIONS), train_dataset=examples(ROWS),
    eval_dataset=examples(7))
trainer.model_accepts_loss_kwargs = False
ddp.init_process_group()
ddp.wrap_trainer(trainer)
ended = trainer.train()
history = trainer.state.log_history
note(figures=[ended.training_loss, ended.metrics["train_loss"], history[-1]["train_loss"]],
     log=[row["loss"] for row in history if "loss" in row], keys=[sorted(row) for row in history])
"""


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param("Trainer", "logging_steps=500", id="no log"),
        pytest.param(
            "Trainer",
            "logging_steps=2, max_steps=-1, num_train_epochs=3, eval_strategy='steps', eval_steps=1",
            id="logs, evaluations, steps of 3 epochs",
        ),
        pytest.param("SFTTrainer", "logging_steps=2", id="TRL"),
    ],
)
def test_the_loss_of_a_training_is_of_all_ranks_to_its_last_step(
    server: RankServer, tmp_path: Path, kind: str, options: str, ranks: int
) -> None:
    """Transformers averages over the ranks what it logs, and adds each rank's own losses after the last log."""
    batch, rows = ((6, 3), 18 * 2 + 5) if ranks == 3 else ((4, 2), 8 * 2 + 5)  # an epoch has 3 steps
    train = TRAINS.replace("KIND", kind).replace("OPTIONS", options).replace("ROWS", str(rows))
    script = f"{START}BATCH, STEPS = {batch}\n{TOOLS}\n{NOTES_FIGURES}\n{train}"
    one, several = server.compare(tmp_path, script, ranks)
    assert not any((*one.codes, *several.codes)), several.text
    for notes in several.notes:
        assert distance(notes["figures"], one.notes[0]["figures"]) < 1e-6
        assert distance(notes["log"], one.notes[0]["log"]) < 1e-6
        assert notes["keys"] == one.notes[0]["keys"]


EVALUATES_BATCHES = """
class OfBatches:
    of_each = []
    def __call__(self, prediction, compute_result=False):
        hits = prediction.predictions.argmax(-1) == prediction.label_ids
        self.of_each.append(float((hits * torch.arange(1.0, 1 + len(hits))).sum()))
        if compute_result:
            of_each, self.of_each = self.of_each, []
            return {"accuracy": sum(of_each) / len(of_each), "rows": len(of_each)}
def of_list(prediction):
    of_each = [float((logits.argmax(-1) == labels).mean())
               for logits, labels in zip(prediction.predictions, prediction.label_ids)]
    return {"accuracy": sum(of_each) / len(of_each), "rows": len(of_each)}
trainer = Trainer(BertForSequenceClassification(config()), arguments(eval_strategy="steps", eval_steps=2, OPTION),
    train_dataset=examples(32), eval_dataset=examples(15), compute_metrics=METRICS)
ddp.init_process_group()
ddp.prepare_trainer(trainer)
before = trainer.evaluate(examples(7))
train(trainer)
predictions = trainer.predict(examples(9)).predictions
note(before=[before[f"eval_{key}"] for key in ("loss", "accuracy", "rows")],
     predicted=[len(each) for each in predictions] if isinstance(predictions, list) else len(predictions))
figures(trainer)
"""


@pytest.mark.parametrize(
    ("option", "metrics"),
    [("batch_eval_metrics=True", "OfBatches()"), ("eval_do_concat_batches=False", "of_list")],
)
def test_metrics_that_are_given_batches_are_given_the_notebooks(
    server: RankServer, tmp_path: Path, option: str, metrics: str
) -> None:
    evaluates = EVALUATES_BATCHES.replace("OPTION", option).replace("METRICS", metrics)
    one, several = server.compare(tmp_path, f"{START}BATCH, STEPS = 4, 2\n{TOOLS}{evaluates}")
    assert not any((*one.codes, *several.codes)), several.text
    expected = one.notes[0]
    for notes in several.notes:
        assert distance(notes["log"], expected["log"]) < 1e-5
        assert distance(notes["before"], expected["before"]) < 1e-5
        assert notes["predicted"] == expected["predicted"]
        assert notes["keys"] == expected["keys"]


def test_what_has_more_rows_than_its_batch_stays_whole_where_each_rank_takes_every_batch(run: Run) -> None:
    """A Seq2SeqTrainer counts the loss of a short batch as of a full one."""
    ended = run(
        """
        import torch
        ddp.init_process_group()
        batches = ddp._WholeBatches([[0, 1, 2], [3]], all_of_them=True)
        batches.as_given = True
        note(gathered=[
            batches.gather(torch.tensor(float(len(batch))).repeat(3)).tolist()
            for batches.round, batch in enumerate(batches)
        ])
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert [notes["gathered"] for notes in ended.notes] == [[[3.0] * 3, [1.0] * 3]] * 2
