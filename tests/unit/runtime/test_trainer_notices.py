"""What a Trainer refuses on several ranks, and what it says of figures that are not those of one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.ranks import Ended, RankServer
from tests.unit.runtime.conftest import START
from tests.unit.runtime.test_parallelize import distance
from tests.unit.runtime.test_trainers import TOOLS, check_as_in_one_process

Run = Callable[..., Ended]


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


def test_a_trainer_says_that_neftune_adds_noise(run: Run) -> None:
    script = "train(Trainer(BertForSequenceClassification(config()), arguments(neftune_noise_alpha=5), "
    ended = run(f"BATCH, STEPS = 4, 2\n{TOOLS}\n{script}train_dataset=examples(32)))")
    assert ended.codes == [0, 0], ended.text
    assert "WARNING: NEFTune adds noise to the embeddings, whose random numbers" in ended.ranks[0].err


DRAWN = """
from transformers import default_data_collator

class Drawn(list):
    def __getitem__(self, place):
        row = super().__getitem__(place)
        return {**row, "input_ids": row["input_ids"] + torch.randint(0, 1, (1,))}

def masking(rows):
    torch.rand(1)
    return default_data_collator(rows)

def taking(rows):
    labels = torch.stack([row.pop("labels") for row in rows])
    return {**default_data_collator(rows), "labels": labels}

class Masks:
    mlm = True
    def __call__(self, rows):
        return default_data_collator(rows)

generator = torch.Generator()
def own(rows):
    torch.rand(1, generator=generator)
    return default_data_collator(rows)

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(examples(32))

Masks.__module__ = "transformers.data"
model = BertForSequenceClassification(config())
train(Trainer(model, arguments(dataloader_num_workers=WORKERS), train_dataset=ROWS, data_collator=COLLATOR))
"""


@pytest.mark.parametrize(
    ("rows", "collator", "workers", "says"),
    [
        ("Drawn(examples(32))", "default_data_collator", 0, "reading a training row draws random numbers"),
        ("examples(32)", "masking", 1, "the data collator draws random numbers"),
        ("examples(32)", "Masks()", 1, "Masks draws random numbers"),
        ("examples(32)", "own", 1, "the data collator draws random numbers"),
        ("Stream()", "own", 0, "the data collator draws random numbers"),
        ("Stream()", "Masks()", 0, "Masks draws random numbers"),
        ("Stream()", "default_data_collator", 0, ""),
        ("examples(32)", "own", 0, ""),
        ("examples(32)", "masking", 0, ""),  # is given what it is given in one process
        ("examples(32)", "Masks()", 0, ""),
        ("examples(32)", "lambda rows: default_data_collator(rows)", 0, ""),
        ("examples(32)", "taking", 0, ""),
    ],
)
def test_a_trainer_says_that_its_data_are_drawn_while_they_are_read(
    run: Run, rows: str, collator: str, workers: int, says: str
) -> None:
    case = DRAWN.replace("ROWS", rows).replace("COLLATOR", collator).replace("WORKERS", str(workers))
    ended = run(f"BATCH, STEPS = 4, 2\n{TOOLS}{case}")
    assert not any(ended.codes), ended.text
    if says:
        assert f"WARNING: {says}" in ended.ranks[0].err
    else:
        assert "random numbers" not in ended.ranks[0].err
    assert "WARNING" not in ended.ranks[1].err


ATTACKS = """
class Attack:
    def __init__(self, model):
        self.parameters = [p for p in model.parameters() if p.requires_grad]
    def move(self):
        return sum(p.grad.norm() for p in self.parameters if p.grad is not None)
class Attacked(Trainer):
    def training_step(self, model, inputs, *args, **kwargs):
        loss = super().training_step(model, inputs, *args, **kwargs)
        return loss + 0.0 * HERE
trainer = Attacked(BertForSequenceClassification(config()), arguments(), train_dataset=examples(32))
train(trainer)
"""


@pytest.mark.parametrize(
    ("here", "shape", "says"),
    [
        ("Attack(model).move()", "4, 2", True),
        ("Attack(model).move()", "6, 1", False),
        ("loss", "4, 2", False),
    ],
)
def test_a_trainer_says_that_its_training_step_looks_at_gradients(
    run: Run, here: str, shape: str, says: bool
) -> None:
    ended = run(f"BATCH, STEPS = {shape}\n{TOOLS}\n{ATTACKS.replace('HERE', here)}")
    assert ended.codes == [0, 0], ended.text
    assert ("WARNING: the notebook's training_step() looks at gradients" in ended.ranks[0].err) is says
    assert "looks at gradients" not in ended.ranks[1].err


ADVERSARIAL = """
class Adversarial(Trainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = super().training_step(model, dict(inputs), num_items_in_batch)
        table = self.model.bert.embeddings.word_embeddings.weight
        delta = 0.7 * table.grad / table.grad.norm()
        table.data.add_(delta)
        self.accelerator.backward(self.compute_loss(model, inputs) / self.current_gradient_accumulation_steps)
        table.data.sub_(delta)
        return loss
trainer = Adversarial(BertForSequenceClassification(config()), arguments(learning_rate=0.1, max_steps=-1,
    num_train_epochs=2), train_dataset=examples(ROWS))
train(trainer)
"""


@pytest.mark.parametrize(
    ("shape", "rows", "ranks"),
    [((4, 3), 24, 2), ((4, 3), 29, 2), pytest.param((6, 2), 25, 3, marks=pytest.mark.thorough)],
)
def test_an_adversarial_step_sees_the_gradients_of_one_process(
    server: RankServer, tmp_path: Path, shape: tuple[int, int], rows: int, ranks: int
) -> None:
    """A micro-batch has two losses; the last one of the 29 rows has a single row."""
    check_as_in_one_process(server, tmp_path, ADVERSARIAL, ranks, shape, rows)


EXPERTS = """
class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.experts = nn.Linear(6, 4), nn.ModuleList(nn.Linear(4, 3) for _ in range(2))
    def forward(self, x, which, labels):
        logits = self.experts[int(which[0])](self.base(x))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}
class Looks(Trainer):
    def training_step(self, model, *args, **kwargs):
        loss = super().training_step(model, *args, **kwargs)
        assert self.model.base.weight.grad is not None
        return loss
    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)
rows = [{"x": row["input_ids"].float(), "which": torch.tensor(place // BATCH % 2), "labels": row["labels"]}
    for place, row in enumerate(examples(ROWS))]  # a micro-batch has one expert
trainer = Looks(Mixture(), arguments(remove_unused_columns=False), train_dataset=rows)
train(trainer)
"""


def test_a_step_that_looks_at_gradients_keeps_those_of_all_its_micro_batches(
    server: RankServer, tmp_path: Path
) -> None:
    check_as_in_one_process(server, tmp_path, EXPERTS, 2, (4, 3), 48)


def test_an_adversarial_step_leaves_replicas_equal_where_micro_batches_are_taken_in_turns(run: Run) -> None:
    ended = run(f"BATCH, STEPS = 4, 4\n{TOOLS}{ADVERSARIAL.replace('ROWS', '32')}")
    assert ended.codes == [0, 0], ended.text
    assert "2 replicas equal, bit for bit" in ended.ranks[0].out
    assert "WARNING: the notebook's training_step() looks at gradients" in ended.ranks[0].err


def test_a_trainer_whose_ranks_take_micro_batches_in_turns_says_that_it_has_dropout(run: Run) -> None:
    ended = run(f"BATCH, STEPS = 4, 2\n{TOOLS}{DROPOUT.replace('KIND', 'Trainer')}")
    assert not any(ended.codes), ended.text
    assert "WARNING: the model has dropout (bert.embeddings.dropout)" in ended.ranks[0].err
    assert "WARNING" not in ended.ranks[1].err


@pytest.mark.parametrize(
    ("side", "batch", "steps", "says"), [("left", 4, 1, 1), ("left", 2, 2, 0), ("right", 4, 1, 0)]
)
def test_padding_on_the_left_of_a_divided_batch_is_said(
    run: Run, side: str, batch: int, steps: int, says: int
) -> None:
    ended = run(
        f"BATCH, STEPS = {batch}, {steps}\n"
        + TOOLS
        + f"""
from transformers import LlamaConfig, LlamaForCausalLM
class Collate:
    class tokenizer:
        padding_side = {side!r}
    def __call__(self, rows):
        return {{"input_ids": torch.stack(rows), "labels": torch.stack(rows)}}
small = LlamaConfig(vocab_size=20, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
rows = [row["input_ids"] for row in examples(12)]
train(Trainer(LlamaForCausalLM(small), arguments(), train_dataset=rows, data_collator=Collate()))
"""
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.ranks[0].err.count("the tokenizer pads on the left, and each rank pads its 2 of") == says
    assert "pads on the left" not in ended.ranks[1].err


WITH_EXPERTS = """
import os, sys, types

class Net(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.add_module(name, nn.Linear(6, 3))
    def forward(self, input_ids, attention_mask=None, labels=None):
        logits = next(self.children())(input_ids.float())
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

ddp.init_process_group()
trainers = {name: Trainer(Net(name), arguments(), train_dataset=examples(24)) for name in ("experts", "dense")}
def compiles(name, given=None):
    os.environ.pop("UNSLOTH_BLOCK_COMPILE", None)
    os.environ.update({"UNSLOTH_BLOCK_COMPILE": given} if given else {})
    ddp.wrap_trainer(trainers[name])
    return os.environ.get("UNSLOTH_BLOCK_COMPILE", "not set")
note(without=compiles("experts"))
sys.modules["unsloth"] = types.ModuleType("unsloth")
note(experts=compiles("experts"), dense=compiles("dense"), given=compiles("experts", "1"))
"""


def test_unsloths_compiled_blocks_are_off_for_experts_alone(run: Run) -> None:
    """A variable that is set already, and a model without experts, are left alone."""
    ended = run(f"BATCH, STEPS = 4, 2\n{TOOLS}{WITH_EXPERTS}")
    assert ended.codes == [0, 0], ended.text
    for notes in ended.notes:
        assert notes == {"without": "not set", "experts": "0", "dense": "not set", "given": "1"}
    assert "compiled blocks are off" not in ended.text  # there are no GPUs
