"""Losses that compare the samples of a batch see those of all ranks, or the script's owner is told."""

from __future__ import annotations

import pytest

from nb2ddp.rules.in_batch import rule
from tests.support.helpers import apply

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
