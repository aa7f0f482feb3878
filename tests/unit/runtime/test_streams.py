"""Streamed data: ranks read the notebook's rows, and rank 0 says where they take the end otherwise, only there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.ranks import Ended

Run = Callable[..., Ended]

PROGRAM = """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        ids = torch.randint(0, 20, (ROWS, 6), generator=torch.Generator().manual_seed(0))
        yield from ({"input_ids": row, "labels": row.sum() % 3} for row in ids)

torch.manual_seed(0)
config = BertConfig(vocab_size=20, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
batch, steps = ddp.share_batch(*BATCH) if world_size > 1 else BATCH
trainer = Trainer(BertForSequenceClassification(config), TrainingArguments("out", per_device_train_batch_size=batch,
    gradient_accumulation_steps=steps, report_to=[], use_cpu=True, disable_tqdm=True, logging_steps=1, optim="sgd",
    max_steps=7, learning_rate=0.05, save_strategy="no", accelerator_config={"dispatch_batches": DISPATCH}),
    train_dataset=Stream())
ddp.init_process_group()
ddp.wrap_trainer(trainer)
trainer.train()
ddp.check_replicas(trainer.model)
note(losses=[row["loss"] for row in trainer.state.log_history if "loss" in row])
"""
SAID = "the streamed data ended with"


def both(run: Run, program: str) -> tuple[Ended, Ended]:
    """Run a program in one process and on two ranks, all of which must end well."""
    one, several = run(program, ranks=0), run(program)
    assert one.codes == [0], one.text
    assert not any(several.codes), several.text
    return one, several


@pytest.mark.parametrize(
    ("rows", "batch", "dispatch", "rest"),
    [
        pytest.param(12, (2, 2), False, 0, id="whole steps"),
        pytest.param(14, (2, 2), True, 2, id="one process waits for the rest of the step"),
        pytest.param(10, (2, 4), True, 2, id="more room is taken of the next step"),
        pytest.param(12, (2, 4), True, 0, id="both wait with as many rows"),
        pytest.param(48, (5, 4), True, 8, id="micro-batches of 5 and 3 are two of 4"),
        pytest.param(13, (4, 1), True, 1, id="one row for two ranks"),
        pytest.param(14, (4, 1), False, 2, id="a round is filled up"),
        pytest.param(14, (4, 1), True, 0, id="a row for each rank"),
    ],
)
def test_its_end_is_said_where_it_differs(
    run: Run, rows: int, batch: tuple[int, int], dispatch: bool, rest: int
) -> None:
    program = (
        PROGRAM.replace("ROWS", str(rows)).replace("BATCH", str(batch)).replace("DISPATCH", str(dispatch))
    )
    one, several = both(run, program)
    assert SAID not in one.text
    lines = [line for line in several.text.splitlines() if SAID in line]
    assert len(lines) == bool(rest), several.text
    apart = max(abs(a - b) for a, b in zip(one.notes[0]["losses"], several.notes[0]["losses"], strict=True))
    if rest:
        assert f"{SAID} {rest} rows that do not fill a step of {batch[0] * batch[1]}" in lines[0]
        assert apart > 1e-3
    else:
        assert apart < 1e-5


def test_micro_batches_of_other_sizes_are_not_said_of_a_sum_over_tokens(run: Run) -> None:
    program = PROGRAM.replace("ROWS", "48").replace("BATCH", "(5, 4)").replace("DISPATCH", "True")
    program = program.replace("BertForSequenceClassification", "BertLMHeadModel").replace(
        "row.sum() % 3", "row"
    )
    program = program.replace("num_labels=3", "is_decoder=True")
    one, several = both(run, program)
    assert SAID not in several.text
    assert several.notes[0]["losses"] == pytest.approx(one.notes[0]["losses"], abs=1e-5)


def test_a_figure_of_each_micro_batch_is_the_notebooks(run: Run) -> None:
    own = """
class OwnTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        self.log({"penalty": outputs.logits.pow(2).mean().item()})
        return (outputs.loss, outputs) if return_outputs else outputs.loss
"""
    program = PROGRAM.replace("ROWS", "16").replace("BATCH", "(2, 4)").replace("DISPATCH", "True")
    program = program.replace("trainer = Trainer(", own + "trainer = OwnTrainer(").replace(
        "max_steps=7", "max_steps=3"
    )
    program = program.replace('row["loss"]', 'row["penalty"]').replace('"loss" in row', '"penalty" in row')
    one, several = both(run, program)
    assert len(one.notes[0]["losses"]) == 12
    assert several.notes[0]["losses"] == pytest.approx(one.notes[0]["losses"], abs=1e-5)


def test_rows_that_no_step_takes_are_not_said(run: Run) -> None:
    """Accelerate reads a batch ahead, and so sees the end of a stream that training does not come to."""
    program = PROGRAM.replace("ROWS", "14").replace("BATCH", "(4, 1)").replace("DISPATCH", "False")
    several = run(program.replace("max_steps=7", "max_steps=3"))
    assert not any(several.codes), several.text
    assert SAID not in several.text


def test_files_of_a_stream_are_not_dealt_to_the_ranks(run: Run) -> None:
    files = """
rows = [{"input_ids": [n % 20, n * 7 % 20, 3], "labels": n % 3} for n in range(32)]
from datasets import IterableDataset
def read(files):
    yield from (row for file in files for row in rows[16 * file : 16 * file + 16])
"""
    program = PROGRAM.replace("BATCH", "(4, 2)").replace("DISPATCH", "None").replace("ROWS", "32")
    streamed = 'IterableDataset.from_generator(read, gen_kwargs={"files": [0, 1]}).with_format("torch")'
    program = files + program.replace("Stream()", streamed)
    one, several = both(run, program)
    assert SAID not in several.text
    apart = (abs(a - b) for a, b in zip(one.notes[0]["losses"], several.notes[0]["losses"], strict=True))
    assert max(apart) < 1e-5


def test_workers_that_read_a_stream_are_said(run: Run) -> None:
    program = PROGRAM.replace("ROWS", "16").replace("BATCH", "(4, 1)").replace("DISPATCH", "False")
    several = run(program.replace("max_steps=7", "max_steps=2, dataloader_num_workers=1"))
    assert not any(several.codes), several.text
    assert several.text.count("worker processes read the stream (dataloader_num_workers=1)") == 1


def test_a_streamed_evaluation_set_counts_each_row_once(run: Run) -> None:
    evaluates = "max_steps=2, per_device_eval_batch_size=4, eval_strategy='epoch'"
    program = PROGRAM.replace("BATCH", "(4, 1)").replace("DISPATCH", "None").replace("max_steps=7", evaluates)
    program = program.replace("train_dataset=Stream()", "train_dataset=list(Stream()), eval_dataset=Stream()")
    program = program.replace('"loss" in row', '"eval_loss" in row').replace(
        'row["loss"]', 'row["eval_loss"]'
    )
    program = program.replace("ROWS", "9")
    one, several = both(run, program)
    assert several.notes[0]["losses"] == pytest.approx(one.notes[0]["losses"], abs=1e-5)
    assert one.notes[0]["losses"]
