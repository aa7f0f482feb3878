"""Trainers whose steps are shared out by length: the run of one process, with fewer tokens on the busiest rank."""

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
import random
import torch
from transformers import DataCollatorForLanguageModeling, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers import TrainerCallback
rng = random.Random(0)
# the first token of a row is its number
rows = [{"input_ids": [row] + [rng.randint(3, 99) for _ in range(min(60, max(3, round(rng.lognormvariate(2.5, 0.9)))))]}
    for row in range(ROWS)]
class Tokenizer:
    pad_token_id, pad_token, padding_side, mask_token = 2, "<pad>", "right", None
    deprecation_warnings = {}
    def save_pretrained(self, folder):
        pass
    def pad(self, rows, **options):
        longest = max(len(row["input_ids"]) for row in rows)
        missing = [longest - len(row["input_ids"]) for row in rows]
        return {"input_ids": torch.tensor([row["input_ids"] + [2] * n for row, n in zip(rows, missing)]),
            "attention_mask": torch.tensor([[1] * (longest - n) + [0] * n for n in missing])}
torch.manual_seed(0)
def llama(**options):
    return LlamaForCausalLM(LlamaConfig(vocab_size=100, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, **options))
def arguments(batch=2, steps=4, **options):
    if world_size > 1:
        batch, steps = ddp.share_batch(batch, steps, by_length=True)
    given = {"save_strategy": "no", "max_steps": -1, "num_train_epochs": 2, **options}
    return TrainingArguments("out", per_device_train_batch_size=batch, gradient_accumulation_steps=steps, report_to=[],
        use_cpu=True, disable_tqdm=True, logging_steps=1, learning_rate=0.1, optim="sgd", **given)
def make(model=None, data=rows, kind=Trainer, collator=None, **options):
    return kind(model or llama(), arguments(**options), train_dataset=data,
        data_collator=collator or DataCollatorForLanguageModeling(Tokenizer(), mlm=False))
def train(trainer, batches="even", resume=None):
    seen, tokens = [], []
    def look(module, args, inputs):
        if module.training:
            ids = inputs["input_ids"]
            labels = inputs.get("labels", ids)
            seen.extend(ids[(labels != -100).any(1), 0].tolist())
            tokens.append(ids.numel())
    hook = trainer.model.register_forward_pre_hook(look, with_kwargs=True)
    ddp.init_process_group()
    ddp.wrap_trainer(trainer, batches)
    trainer.train(resume_from_checkpoint=resume)
    ddp.check_replicas(trainer.model)
    hook.remove()
    note(losses=[entry["loss"] for entry in trainer.state.log_history if "loss" in entry], seen=seen, tokens=tokens,
        parameters=[p.detach() for p in trainer.model.parameters()], steps=trainer.state.global_step)
"""


def compare(
    server: RankServer, folder: Path, script: str, ranks: int, rows: int = 48
) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    """Run a script in one process and on some ranks; return what each noted, and what rank 0 printed."""
    program = f"{START}ROWS = {rows}\n{TOOLS}\n{textwrap.dedent(script)}"
    one, several = server.compare(folder, program, ranks)
    assert one.codes == [0], one.text
    assert not any(several.codes), several.text
    return one.notes[0], several.notes, several.ranks[0].out


def check_same_run(one: dict[str, Any], ranks: list[dict[str, Any]], within: float = 1e-5) -> None:
    assert one["losses"]
    assert len(one["losses"]) == len(ranks[0]["losses"])
    assert distance(one["losses"], ranks[0]["losses"]) < within, (one["losses"], ranks[0]["losses"])
    assert all(rank["parameters"] == ranks[0]["parameters"] for rank in ranks)
    assert distance(one["parameters"], ranks[0]["parameters"]) < within
    assert sorted(row for rank in ranks for row in rank["seen"]) == sorted(one["seen"])


EVEN = "nb2ddp: each step's samples are shared out by length: 8 samples in"


THOROUGH = pytest.mark.thorough


@pytest.mark.parametrize(
    ("ranks", "rows"),
    [
        (2, 45),
        (3, 41),
        *(pytest.param(ranks, rows, marks=THOROUGH) for ranks, rows in ((2, 48), (2, 41), (3, 48), (3, 46))),
    ],
)
def test_each_step_has_the_samples_of_one_process(
    server: RankServer, tmp_path: Path, ranks: int, rows: int
) -> None:
    """Also where 8 samples do not divide by 3 ranks, and where an epoch's last step has fewer."""
    one, several, output = compare(server, tmp_path, "train(make())", ranks, rows)
    check_same_run(one, several)
    assert f"{EVEN} {ranks} x 2 micro-batches" in output
    assert one["steps"] == several[0]["steps"] == 2 * -(-rows // 8)


@pytest.mark.parametrize(("ranks", "rows"), [pytest.param(2, 48, marks=THOROUGH), (3, 45)])
def test_micro_batches_that_are_dealt_keep_their_rows(
    server: RankServer, tmp_path: Path, ranks: int, rows: int
) -> None:
    one, several, output = compare(server, tmp_path, "train(make(bf16=True), 'dealt')", ranks, rows)
    # gradients divided by 3 round, and 16 bits tell it
    check_same_run(one, several, within=1e-5 if ranks == 2 else 1e-3)
    assert distance(one["losses"], several[0]["losses"]) < 1e-4
    dealt = "nb2ddp: each step's micro-batches are dealt by length: 8 samples in"
    assert f"{dealt} {ranks} x 2 micro-batches" in output


def test_the_busiest_rank_has_fewer_tokens_and_no_larger_batch(run: Run) -> None:
    busiest, largest = {}, {}
    for batches in ("notebook", "dealt", "even"):
        ended = run(f"ROWS = 64\n{TOOLS}\ntrain(make(batch=4, steps=4), {batches!r})\n")
        assert not any(ended.codes), ended.text
        assert ("by length: 16 samples in" in ended.ranks[0].out) == (batches != "notebook")
        tokens = [rank["tokens"] for rank in ended.notes]
        steps = [[sum(own[start : start + 2]) for start in range(0, len(own), 2)] for own in tokens]
        busiest[batches] = sum(map(max, zip(*steps, strict=True)))
        largest[batches] = max(map(max, tokens))
    assert busiest["even"] < 0.8 * busiest["notebook"]
    assert busiest["dealt"] < busiest["notebook"]
    assert largest["even"] <= 4 * 61


def test_a_run_resumed_in_its_second_epoch_is_the_run_of_one_process(
    server: RankServer, tmp_path: Path
) -> None:
    script = """
        train(make(save_strategy="steps", save_steps=9))
        train(make(), resume="out/checkpoint-9")
    """
    one, several, _ = compare(server, tmp_path, script, 2, rows=45)
    assert one["steps"] == 12
    check_same_run(one, several)


def test_a_second_training_shares_out_too(server: RankServer, tmp_path: Path) -> None:
    script = """
        trainer = make(num_train_epochs=1)
        train(trainer)
        train(trainer)
    """
    one, several, output = compare(server, tmp_path, script, 3)
    check_same_run(one, several)
    assert output.count(EVEN) == 1


def test_a_second_training_on_other_data_shares_those_out(server: RankServer, tmp_path: Path) -> None:
    script = """
        trainer = make(data=rows[:40], num_train_epochs=1)
        train(trainer)
        trainer.train_dataset = rows
        train(trainer)
    """
    one, several, output = compare(server, tmp_path, script, 2)
    check_same_run(one, several)
    assert output.count(EVEN) == 2


def test_the_last_batch_is_dropped_as_in_one_process(server: RankServer, tmp_path: Path) -> None:
    one, several, _ = compare(server, tmp_path, "train(make(dataloader_drop_last=True))", 2, rows=43)
    check_same_run(one, several)
    assert len(one["seen"]) == 2 * 42


OFF = {
    "a trial that raises": (
        """
        class Once:
            def __init__(self):
                self.pad_token_id = 2
            def __call__(self, rows):
                global calls
                calls += 1
                if calls == 1:
                    raise KeyError("rows")
                return DataCollatorForLanguageModeling(Tokenizer(), mlm=False)(rows)
        calls = 0
        Once.__module__ = "transformers.data"
        train(make(collator=Once()))
        """,
        "the trial of two rows raised KeyError: 'rows'",
    ),
    "a batch that is looked for": (
        """
        trainer = make(auto_find_batch_size=True)
        ddp.init_process_group()
        ddp.wrap_trainer(trainer, "even")
        eval("make()", {"make": trainer.get_train_dataloader})  # as code of a library, not the notebook's
        """,
        "auto_find_batch_size looks for a batch that fits",
    ),
    "fewer samples than ranks": ("train(make(batch=1, steps=1))", "1 samples cannot be shared among 2 ranks"),
    "data of one length": (
        "train(make(data=[{'input_ids': row['input_ids'][:4]} for row in rows]))",
        "all rows have one length",
    ),
    "a loss of the notebook's own": (
        """
        class Own(Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
                outputs = model(**inputs)
                return (outputs.loss, outputs) if return_outputs else outputs.loss
        train(make(kind=Own))
        """,
        "compute_loss of the notebook's own",
    ),
    "a library's Trainer with another loss": (
        """
        class Library(Trainer):
            def compute_loss(self, *args, **options):
                return super().compute_loss(*args, **options)
        Library.compute_loss.__module__ = Library.__module__ = "library"
        class Mine(Library):
            pass
        train(make(kind=Mine))
        """,
        "Mine is not known to take a mean over the tokens of a step",
    ),
    "a model whose loss is a mean": (
        """
        from transformers.loss.loss_utils import ForCausalLMLoss
        model = llama()
        model.loss_function = lambda logits, labels, vocab_size, **options: ForCausalLMLoss(logits, labels, vocab_size)
        train(make(model))
        """,
        "the loss of rows together is not the sum of their losses",
    ),
    "label smoothing": (
        "train(make(label_smoothing_factor=0.1))",
        "label smoothing is a mean over each micro-batch",
    ),
    "a collator of the notebook's own": (
        "train(make(collator=lambda rows: DataCollatorForLanguageModeling(Tokenizer(), mlm=False)(rows)))",
        "the collator is not known",
    ),
    "data that cannot say their lengths": (
        """
        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return len(rows)
            def __getitem__(self, row):
                return rows[row]
        train(make(data=Data()))
        """,
        "the lengths of the rows are not known without their being read",
    ),
    "rows grouped by length": (
        """
        import inspect
        old = "group_by_length" in inspect.signature(TrainingArguments.__init__).parameters
        train(make(**({"group_by_length": True} if old else {"train_sampling_strategy": "group_by_length"})))
        """,
        "LengthGroupedSampler puts rows together",
    ),
    "a stream": (
        """
        from datasets import Dataset
        train(make(data=Dataset.from_list(rows).to_iterable_dataset(), max_steps=3,
            accelerator_config={"dispatch_batches": False}))
        """,
        "the data are streamed, or handed out by Accelerate",
    ),
}


SELDOM = ("label smoothing", "a collator of the notebook's own", "rows grouped by length", "a stream")


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[THOROUGH] if case in SELDOM else []) for case in OFF]
)
def test_it_is_off_and_says_why(run: Run, case: str) -> None:
    script, reason = OFF[case]
    ended = run(f"ROWS = 48\n{TOOLS}\n{textwrap.dedent(script)}\n")
    assert not any(ended.codes), ended.text
    assert f"nb2ddp: micro-batches are taken in the notebook's order: {reason}\n" in ended.ranks[0].out, (
        ended.text
    )
    assert "by length" not in ended.ranks[0].out


def test_in_one_process_nothing_is_shared_out(run: Run) -> None:
    ended = run(f"ROWS = 48\n{TOOLS}\ntrain(make())\n", ranks=0)
    assert ended.codes == [0], ended.text
    assert "nb2ddp:" not in ended.ranks[0].out


@pytest.mark.parametrize("kind", ["Trainer", "Own"])
def test_a_batch_that_does_not_divide_is_said_once(run: Run, kind: str) -> None:
    """What a step takes is known when its batches are made: by length the notebook's 8 samples, in turns 12."""
    own = """
class Own(Trainer):
    def training_step(self, *args, **options):
        return super().training_step(*args, **options)
"""
    ended = run(f"ROWS = 48\n{TOOLS}\n{own}\ntrain(make(kind={kind}, max_steps=2), 'dealt')\n", 3)
    assert not any(ended.codes), ended.text
    by_length = kind == "Trainer"
    said = (
        "dealt by length: 8 samples",
        "batch 2 x 4, by length over 3 processes = 8 per step",
        "= 12 per step",
        "batch of 8 does not divide: a step takes 12 samples",
    )
    assert [ended.ranks[0].out.count(line) for line in said] == [
        *[by_length] * 2,
        *[not by_length] * 2,
    ]
