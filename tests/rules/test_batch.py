"""The notebook's batch is split over the ranks, wherever its parts are written."""

from __future__ import annotations

import pytest

from nb2ddp.options import Options
from nb2ddp.rules.batch import rule
from tests.support.helpers import apply, check_rewritten, check_untouched

HEAD = "from functools import partial\nfrom trl import DPOConfig, SFTConfig, SFTTrainer\n"
KEYS = "per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank"


def share(batch: str, steps: str, indent: str = "") -> str:
    return (
        f"{indent}batch_per_rank, accumulation_per_rank = ddp.share_batch({batch}, {steps})"
        "  # nb2ddp: the notebook's batch, split\n"
    )


LEFT_ALONE = {
    "a dict that becomes no arguments": "x = dict(per_device_train_batch_size=2)",
    "a model's configuration": "from transformers import LlamaConfig\nc = LlamaConfig(4)",
    "adapters": "from peft import LoraConfig\nc = LoraConfig(r=16)",
    "dead code": HEAD + 'if False:\n    args = SFTConfig("o", per_device_train_batch_size=2)',
    "a class of the notebook": "class SFTConfig:\n    pass\nargs = SFTConfig()",
}

# What the arguments say, and what share_batch is asked.
RECIPES = {
    "both parts": ("per_device_train_batch_size=2, gradient_accumulation_steps=4", "2", "4"),
    "the batch alone": ("per_device_train_batch_size=2", "2", "1"),
    "names and sums": (
        "per_device_train_batch_size=B, gradient_accumulation_steps=64 // B",
        "B",
        "64 // B",
    ),
    "a choice": ("per_device_train_batch_size=2 if big else 1", "2 if big else 1", "1"),
}

ONE_PER_LINE = {
    "with comments": (
        "args = SFTConfig(\n        per_device_train_batch_size = 2, # small\n"
        '        gradient_accumulation_steps = 4,  # many\n        output_dir = "o",\n    )\n',
        share("2", "4") + "args = SFTConfig(\n        per_device_train_batch_size = batch_per_rank, # small\n"
        "        gradient_accumulation_steps = accumulation_per_rank,  # many\n"
        '        output_dir = "o",\n    )\n',
    ),
    "neither part given": (
        '# the recipe\nargs = SFTConfig(\n    output_dir = "o",\n    max_steps = 5 # short\n)\n',
        "# the recipe\n" + share("8", "1") + 'args = SFTConfig(\n    output_dir = "o",\n'
        "    max_steps = 5, # short\n    per_device_train_batch_size = batch_per_rank,\n"
        "    gradient_accumulation_steps = accumulation_per_rank,\n)\n",
    ),
    "inside the trainer": (
        "trainer = SFTTrainer(\n    model = model,\n    args = SFTConfig(\n"
        "        per_device_train_batch_size = 2,\n    ),\n)\n",
        share("2", "1") + "trainer = SFTTrainer(\n    model = model,\n    args = SFTConfig(\n"
        "        per_device_train_batch_size = batch_per_rank,\n"
        "        gradient_accumulation_steps = accumulation_per_rank,\n    ),\n)\n",
    ),
    "a dict": (
        'kw = {\n    "output_dir": "o",\n    "per_device_train_batch_size": 2,  # small\n}\n'
        "args = SFTConfig(**kw)\n",
        share("2", "1") + 'kw = {\n    "gradient_accumulation_steps": accumulation_per_rank,\n'
        '    "output_dir": "o",\n    "per_device_train_batch_size": batch_per_rank,  # small\n}\n'
        "args = SFTConfig(**kw)\n",
    ),
}

MADE_ELSEWHERE = {
    "a dict() call": (
        'kw = dict(per_device_train_batch_size=2)\nargs = SFTConfig("o", **kw)\n',
        f'{share("2", "1")}kw = dict({KEYS})\nargs = SFTConfig("o", **kw)\n',
    ),
    "a dict that a function gets": (
        'kw = dict(per_device_train_batch_size=2)\ndef make(cfg):\n    return SFTConfig("o", **cfg)\n'
        "args = make(kw)\n",
        f'{share("2", "1")}kw = dict({KEYS})\ndef make(cfg):\n    return SFTConfig("o", **cfg)\n'
        "args = make(kw)\n",
    ),
    "a dict in the call": (
        'args = SFTConfig("o", **{"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4})\n',
        share("2", "4") + 'args = SFTConfig("o", **{"per_device_train_batch_size": batch_per_rank, '
        '"gradient_accumulation_steps": accumulation_per_rank})\n',
    ),
    "a dict without a batch": (
        'kw = dict(output_dir="o")\nargs = SFTConfig(per_device_train_batch_size=2, '
        "gradient_accumulation_steps=4, **kw)\n",
        f'kw = dict(output_dir="o")\n{share("2", "4")}args = SFTConfig({KEYS}, **kw)\n',
    ),
    "one dict for two runs": (
        'kw = dict(per_device_train_batch_size=2)\na = SFTConfig("a", **kw)\nb = SFTConfig("b", **kw)\n',
        f'{share("2", "1")}kw = dict({KEYS})\na = SFTConfig("a", **kw)\nb = SFTConfig("b", **kw)\n',
    ),
    "functools.partial": (
        'make = partial(SFTConfig, per_device_train_batch_size=2)\nargs = make("o")\n',
        f'{share("2", "1")}make = partial(SFTConfig, {KEYS})\nargs = make("o")\n',
    ),
    "a function": (
        'def make(b):\n  return SFTConfig("o", per_device_train_batch_size=b)\nargs = make(2)\n',
        f'def make(b):\n{share("b", "1", "  ")}  return SFTConfig("o", {KEYS})\nargs = make(2)\n',
    ),
    "two runs": (
        "a = SFTConfig(per_device_train_batch_size=2)\nb = DPOConfig(per_device_train_batch_size=4)\n",
        f"{share('2', '1')}a = SFTConfig({KEYS})\n{share('4', '1')}b = DPOConfig({KEYS})\n",
    ),
    "the trainer's second argument": (
        't = SFTTrainer(model, SFTConfig("o"))\n',
        f'{share("8", "1")}t = SFTTrainer(model, SFTConfig("o", {KEYS}))\n',
    ),
}

CLASSES = {
    "another name": ("from trl import SFTConfig as C", "C"),
    "through the module": ("import trl as rl", "rl.SFTConfig"),
    "a star import": ("from trl import *", "SFTConfig"),
    "Transformers' arguments": ("import transformers", "transformers.TrainingArguments"),
    "Unsloth's arguments": ("from unsloth import UnslothTrainingArguments as C", "C"),
    "a subclass": ("import trl\nclass C(trl.SFTConfig):\n    pass", "C"),
}

OUT_OF_SIGHT = {
    "from a file": ('args = SFTConfig(**yaml.safe_load(open("c")))', 2 + 1, "write it here"),
    "half here and half there": (
        "kw = dict(gradient_accumulation_steps=2)\nargs = SFTConfig(per_device_train_batch_size=2, **kw)",
        4,
        "write it here",
    ),
    "a dict that a function gets in two ways": (
        'def make(**kw):\n    return SFTConfig("o", **kw)\n'
        "a = make(per_device_train_batch_size=2)\nb = make(per_device_train_batch_size=4)",
        4,
        "write it here",
    ),
    "a dict that a parameter takes in two ways": (
        'def make(cfg):\n    return SFTConfig("o", **cfg)\n'
        "a = make(dict(per_device_train_batch_size=2))\nb = make(dict(per_device_train_batch_size=4))",
        4,
        "write it here",
    ),
    "a dict that a parameter may not take": (
        'def make(cfg={}):\n    return SFTConfig("o", **cfg)\n'
        "a = make(dict(per_device_train_batch_size=2))\nb = make()",
        4,
        "write it here",
    ),
    "set later": (
        'args = SFTConfig("o", per_device_train_batch_size=2)\nargs.per_device_train_batch_size = 4',
        4,
        "per_device_train_batch_size is set later",
    ),
    "its accumulation set later": (
        'args = SFTConfig("o")\nargs.gradient_accumulation_steps = 4',
        4,
        "gradient_accumulation_steps is set later",
    ),
    "set later through the trainer": (
        't = SFTTrainer(model, args=SFTConfig("o"))\nt.args.gradient_accumulation_steps = 4',
        4,
        "gradient_accumulation_steps is set later",
    ),
    "made in a lambda": (
        'make = lambda: SFTConfig("o", per_device_train_batch_size=2)',
        3,
        "give them a name",
    ),
    "no arguments at all": ("t = SFTTrainer(model)", 3, "give it some"),
    "arguments of an unknown kind": ("t = SFTTrainer(model, args=read())", 3, "make them in the notebook"),
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE.keys())
def test_what_holds_no_batch_is_left_alone(source: str) -> None:
    assert not check_untouched(rule, source).declined


@pytest.mark.parametrize(("arguments", "batch", "steps"), RECIPES.values(), ids=RECIPES.keys())
def test_the_batch_is_split(arguments: str, batch: str, steps: str) -> None:
    check_rewritten(
        rule,
        f'{HEAD}args = SFTConfig("o", {arguments})\n',
        f'{HEAD}{share(batch, steps)}args = SFTConfig("o", {KEYS})\n',
    )


def test_what_is_not_said_is_the_default_of_transformers() -> None:
    check_rewritten(
        rule, f'{HEAD}args = SFTConfig("o")\n', f'{HEAD}{share("8", "1")}args = SFTConfig("o", {KEYS})\n'
    )


@pytest.mark.parametrize(("before", "after"), ONE_PER_LINE.values(), ids=ONE_PER_LINE.keys())
def test_arguments_one_per_line_keep_their_lines_and_comments(before: str, after: str) -> None:
    check_rewritten(rule, HEAD + before, HEAD + after)


@pytest.mark.parametrize(("before", "after"), MADE_ELSEWHERE.values(), ids=MADE_ELSEWHERE.keys())
def test_the_batch_is_split_where_it_is_written(before: str, after: str) -> None:
    assert not check_rewritten(rule, HEAD + before, HEAD + after).declined


@pytest.mark.parametrize(("header", "name"), CLASSES.values(), ids=CLASSES.keys())
def test_arguments_are_known_by_their_class(header: str, name: str) -> None:
    check_rewritten(
        rule,
        f"{header}\nargs = {name}(per_device_train_batch_size=2)\n",
        f"{header}\n{share('2', '1')}args = {name}({KEYS})\n",
    )


@pytest.mark.parametrize(("source", "line", "why"), OUT_OF_SIGHT.values(), ids=OUT_OF_SIGHT.keys())
def test_a_batch_that_cannot_be_seen_is_declined_at_its_line(source: str, line: int, why: str) -> None:
    [decline] = apply(rule, HEAD + source).declined
    assert why in decline.why
    assert decline.place is not None
    assert decline.place.line == line


def test_a_scaled_batch_keeps_the_notebooks_numbers() -> None:
    code = HEAD + 'args = SFTConfig("o", per_device_train_batch_size=2)'
    result = check_untouched(rule, code, options=Options(batch="scale"))
    [note] = result.notes
    assert "a step takes more data" in note.why


def test_names_of_the_notebook_are_not_taken() -> None:
    result = apply(rule, HEAD + 'batch_per_rank = 1\nargs = SFTConfig("o")')
    assert "per_device_train_batch_size=ddp_batch_per_rank" in result.code[1]


def test_a_batch_that_a_function_passes_on_is_split_where_it_is_given() -> None:
    head = "from trl import SFTConfig\ndef make(**kw):\n    return SFTConfig('o', **kw)\n"
    code = apply(rule, head + "args = make(per_device_train_batch_size=2)\n").code[1]
    assert "ddp.share_batch(2, 1)" in code
    assert "make(per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=" in code
    assert "SFTConfig('o', **kw)" in code


EMBEDDING = """\
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses
loss = losses.{loss}
args = SentenceTransformerTrainingArguments("o", per_device_train_batch_size=256{steps})
trainer = SentenceTransformerTrainer(model, args=args, loss=loss)
trainer.train()
"""


@pytest.mark.parametrize("steps", ["", ", gradient_accumulation_steps=1"])
@pytest.mark.parametrize(
    ("loss", "gathers"),
    [
        ("MultipleNegativesRankingLoss(model)", "(model, gather_across_devices=world_size > 1)"),
        (
            "CachedMultipleNegativesRankingLoss(model, mini_batch_size = 32)",
            "(model, mini_batch_size = 32, gather_across_devices = world_size > 1)",
        ),
        (
            "GISTEmbedLoss(model, guide, gather_across_devices=False)",
            "(model, guide, gather_across_devices=world_size > 1)",
        ),
    ],
)
def test_negatives_of_a_split_batch_come_from_all_ranks(loss: str, gathers: str, steps: str) -> None:
    result = apply(rule, EMBEDDING.format(loss=loss, steps=steps))
    assert f"loss = losses.{loss.partition('(')[0]}{gathers}\n" in result.code[1]
    (note,) = result.notes
    assert "drops an epoch's last batch" in note.why


@pytest.mark.parametrize(
    ("install", "loss"),
    [
        ("!pip install 'sentence-transformers<5.1'\n", "MultipleNegativesRankingLoss(model)"),
        ("!pip install sentence-transformers==4.1.0\n", "MultipleNegativesSymmetricRankingLoss(model)"),
        ("", "MultipleNegativesRankingLoss(model, **options)"),
    ],
)
def test_negatives_that_cannot_be_gathered_are_noted(install: str, loss: str) -> None:
    result = apply(rule, install + EMBEDDING.format(loss=loss, steps=""))
    (note,) = result.notes
    assert loss.partition("(")[0] in note.why
    assert "gather_across_devices=True" in note.why
    assert f"losses.{loss}" in result.code[1]


def test_the_batches_of_a_batch_sampler_are_split_by_accelerate() -> None:
    steps = ", batch_sampler=BatchSamplers.NO_DUPLICATES, dataloader_drop_last=True"
    result = apply(rule, EMBEDDING.format(loss="MultipleNegativesRankingLoss(model)", steps=steps))
    split = ', accelerator_config={"split_batches": world_size > 1})\n'
    assert f'("o", per_device_train_batch_size=256{steps}{split}' in result.code[1]
    assert "gather_across_devices=world_size > 1" in result.code[1]
    assert "share_batch" not in result.code[1]
    assert not result.notes


def test_an_accelerator_config_of_the_notebooks_own_is_left_alone() -> None:
    steps = ", batch_sampler=BatchSamplers.NO_DUPLICATES, accelerator_config=config"
    result = apply(rule, EMBEDDING.format(loss="MultipleNegativesRankingLoss(model)", steps=steps))
    _, note = result.notes
    assert '"split_batches": True' in note.why
    assert note.place is not None
    assert note.place.line == 3
    assert "accelerator_config=config)" in result.code[1]


@pytest.mark.parametrize("loss", ["BatchHardSoftMarginTripletLoss", "CoSENTLoss", "MegaBatchMarginLoss"])
def test_losses_that_compare_within_a_batch_are_noted(loss: str) -> None:
    (note,) = apply(rule, EMBEDDING.format(loss=f"{loss}(model)", steps="")).notes
    assert f"{loss} compares" in note.why


@pytest.mark.parametrize(
    ("loss", "steps"),
    [
        ("MultipleNegativesRankingLoss(model, gather_across_devices=True)", ", dataloader_drop_last=True"),
        ("MultipleNegativesRankingLoss(model)", ", gradient_accumulation_steps=4"),
        ("CosineSimilarityLoss(model)", ""),
    ],
)
def test_a_batch_that_stays_whole_or_is_gathered_loses_none(loss: str, steps: str) -> None:
    assert not apply(rule, EMBEDDING.format(loss=loss, steps=steps)).notes


def test_a_scaled_batch_keeps_its_negatives() -> None:
    source = EMBEDDING.format(loss="MultipleNegativesRankingLoss(model)", steps="")
    (note,) = apply(rule, source, options=Options(batch="scale")).notes
    assert "--batch scale" in note.why


def test_a_batch_that_each_rank_would_find_for_itself_is_declined() -> None:
    (declined,) = apply(rule, HEAD + 'args = SFTConfig("o", auto_find_batch_size=True)').declined
    assert "another batch on each rank" in declined.why


@pytest.mark.parametrize(("end", "count"), [("", 1), (".prepare", 0)], ids=["all the data", "shared out"])
def test_a_loader_of_its_own_gives_every_rank_all_the_data(end: str, count: int) -> None:
    loader = "DataLoader(self.train_dataset, batch_size=2)"
    value = f"self.accelerator.prepare({loader})" if end else loader
    source = (
        "from torch.utils.data import DataLoader\nfrom transformers import Trainer\n"
        f"class Mine(Trainer):\n    def get_train_dataloader(self):\n        return {value}\n"
        'args = SFTConfig("o", per_device_train_batch_size=2)\nt = Mine(llm, args)\nt.train()\n'
    )
    assert len(apply(rule, HEAD + source).declined) == count


@pytest.mark.parametrize(
    ("given", "made"), [("4", "accumulation_per_rank"), ("8", "2 * accumulation_per_rank")]
)
def test_each_generation_serves_as_many_steps_as_in_the_notebook(given: str, made: str) -> None:
    args = f"num_generations=4, gradient_accumulation_steps=4, steps_per_generation={given}"
    source = f"from trl import GRPOConfig\nargs = GRPOConfig('o', {args})\n"
    assert f"steps_per_generation={made}," in apply(rule, source).code[1]


def test_generations_that_cannot_be_split_are_declined() -> None:
    args = "gradient_accumulation_steps=4, steps_per_generation=2"
    source = f"from trl import GRPOConfig\nargs = GRPOConfig('o', {args})\n"
    assert "multiple" in apply(rule, source).declined[0].why


def test_rows_grouped_by_length_come_in_another_order() -> None:
    (note,) = apply(rule, HEAD + 'args = SFTConfig("o", group_by_length=True)').notes
    assert "another order" in note.why


def test_each_rank_reads_a_stream_and_takes_its_part() -> None:
    source = (
        "from datasets import load_dataset\nd = load_dataset('x', streaming=True)\nargs = SFTConfig('o')\n"
    )
    code = apply(rule, HEAD + source + "t = SFTTrainer(llm, args=args, train_dataset=d)\nt.train()\n").code[1]
    assert 'accelerator_config={"dispatch_batches": False}' in code


def test_who_reads_the_batch_back_gets_the_notebooks_number() -> None:
    args = 'args = SFTConfig("o", per_device_train_batch_size=2, gradient_accumulation_steps=4)\n'
    read = "t = SFTTrainer(llm, args=args)\nn = {} * {}\n"
    code = apply(
        rule,
        HEAD + args + read.format("args.per_device_train_batch_size", "t.args.gradient_accumulation_steps"),
    ).code[1]
    assert code.endswith(read.format("2", "4"))


def test_a_number_that_cannot_be_told_is_noted() -> None:
    args = 'args = SFTConfig("o", per_device_train_batch_size=B)\n'
    (note,) = apply(rule, HEAD + args + "print(args.per_device_train_batch_size)\n").notes
    assert "one rank's share" in note.why
