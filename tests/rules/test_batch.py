"""The notebook's batch is split over the ranks, wherever its parts are written."""

from __future__ import annotations

import pytest

from nb2ddp.rules.batch import rule
from tests.support.helpers import apply, check_rewritten

HEAD = "from functools import partial\nfrom trl import DPOConfig, SFTConfig, SFTTrainer\n"
KEYS = "per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank"


def share(batch: str, steps: str, indent: str = "") -> str:
    return (
        f"{indent}batch_per_rank, accumulation_per_rank = ddp.share_batch({batch}, {steps})"
        "  # nb2ddp: the notebook's batch, split\n"
    )


CLASSES = {
    "another name": ("from trl import SFTConfig as C", "C"),
    "through the module": ("import trl as rl", "rl.SFTConfig"),
    "a star import": ("from trl import *", "SFTConfig"),
    "Transformers' arguments": ("import transformers", "transformers.TrainingArguments"),
    "Unsloth's arguments": ("from unsloth import UnslothTrainingArguments as C", "C"),
    "a subclass": ("import trl\nclass C(trl.SFTConfig):\n    pass", "C"),
}


@pytest.mark.parametrize(("header", "name"), CLASSES.values(), ids=CLASSES.keys())
def test_arguments_are_known_by_their_class(header: str, name: str) -> None:
    check_rewritten(
        rule,
        f"{header}\nargs = {name}(per_device_train_batch_size=2)\n",
        f"{header}\n{share('2', '1')}args = {name}({KEYS})\n",
    )


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
