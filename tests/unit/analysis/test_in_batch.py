"""Losses that compare the samples of a batch, and whether they gather them from all ranks."""

from __future__ import annotations

import libcst as cst
import pytest

from nb2ddp.analysis import in_batch
from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import call_to

START = (
    "from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments as Arguments\n"
    "from sentence_transformers import losses\n"
)
RANKING = "loss = losses.MultipleNegativesRankingLoss(model)"
TRAINED = "trainer = SentenceTransformerTrainer(model=m)\ntrainer.train()\n"


@pytest.mark.parametrize(
    ("code", "negatives", "within"),
    [
        (RANKING, ["MultipleNegativesRankingLoss"], []),
        ("losses.CachedGISTEmbedLoss(model, guide)", ["CachedGISTEmbedLoss"], []),
        ("losses.BatchHardSoftMarginTripletLoss(model)", [], ["BatchHardSoftMarginTripletLoss"]),
        ("losses.CoSENTLoss(model)", [], ["CoSENTLoss"]),
        ("losses.CosineSimilarityLoss(model)", [], []),
        (f"{TRAINED}{RANKING}", [], []),
    ],
)
def test_which_losses_compare_samples(code: str, negatives: list[str], within: list[str]) -> None:
    facts = facts_of(START, code)
    assert [name for name, _ in in_batch.uses_negatives(facts)] == negatives
    assert [name for name, _ in in_batch.compares_within(facts)] == within


@pytest.mark.parametrize(
    ("code", "already", "can"),
    [
        (RANKING, False, True),
        (f"!pip install sentence-transformers==5.0.0\n{RANKING}", False, False),
        (f"!pip install sentence-transformers==5.1.0\n{RANKING}", False, True),
        (RANKING.replace(")", ", **options)"), False, False),
        (RANKING.replace(")", ", gather_across_devices=True)"), True, True),
        (RANKING.replace(")", ", gather_across_devices=False)"), False, True),
    ],
)
def test_whether_a_loss_gathers(code: str, already: bool, can: bool) -> None:
    facts = facts_of(START, code)
    loss = call_to(facts, "losses.Multiple")
    assert (in_batch.gathers_already(facts, loss), in_batch.can_gather(facts, loss)) == (already, can)
    assert in_batch.gathered(facts) == (already or can)


@pytest.mark.parametrize(
    ("code", "sampler", "one_ranks"),
    [
        (f"{RANKING}\nArguments(batch_sampler=own)", "own", False),
        (f"{RANKING}\nArguments(batch_sampler=own, accelerator_config=c)", "own", True),
        (f"{RANKING}\nArguments(accelerator_config=c)", None, False),
        ("losses.CoSENTLoss(model)\nArguments(batch_sampler=own, accelerator_config=c)", None, False),
    ],
)
def test_the_sampler_of_a_batch_that_is_gathered(code: str, sampler: str | None, one_ranks: bool) -> None:
    facts = facts_of(START, code)
    arguments = call_to(facts, "Arguments(")
    found = in_batch.batch_sampler(facts, arguments)
    assert (None if found is None else cst_nodes.code_of(found)) == sampler
    assert in_batch.is_one_ranks(facts, arguments) == one_ranks


@pytest.mark.parametrize(
    ("accumulation", "expected"), [(None, True), ("1", True), ("4", False), ("n", False)]
)
def test_a_batch_without_accumulation_is_split(accumulation: str | None, expected: bool) -> None:
    given = (
        {} if accumulation is None else {"gradient_accumulation_steps": cst.parse_expression(accumulation)}
    )
    assert in_batch.splits_the_batch(given) == expected
