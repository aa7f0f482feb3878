"""Find losses that compare the samples of a batch, and whether they gather them from all ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping

import libcst as cst

from nb2ddp.analysis import installs
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.training_arguments import ACCUMULATION
from nb2ddp.source import cst_nodes

GATHERS = "gather_across_devices"
GATHERS_SINCE = "5.1.0"  # the first Sentence Transformers whose losses have that argument
# Losses of Sentence Transformers that use the other samples of a batch as negatives.
_NEGATIVES = re.compile(r"(?:MultipleNegatives\w*|(?:Cached)?GISTEmbed)Loss$")
# Losses that compare the samples of a batch with one another, and cannot gather them from all ranks.
_WITHIN = re.compile(
    r"(?:Batch(?:All|Hard|SemiHard)\w*Triplet|MegaBatchMargin|CoSENT|AnglE|OnlineContrastive)Loss$"
)


def splits_the_batch(given: Mapping[str, cst.BaseExpression]) -> bool:
    """Return whether ranks must divide the batch itself: there is one accumulation step."""
    return cst_nodes.code_of(given.get(ACCUMULATION, cst.Integer("1"))) == "1"


def compares_within(facts: Facts) -> list[tuple[str, cst.Call]]:
    """List the losses, by name and call, that can compare a sample only with those of its rank."""
    return [(name, call) for name, call in facts.once(_losses) if _WITHIN.match(name)]


def uses_negatives(facts: Facts) -> list[tuple[str, cst.Call]]:
    """List the losses, by name and call, whose negatives are the other samples of a batch."""
    return [(name, call) for name, call in facts.once(_losses) if not _WITHIN.match(name)]


def gathers_already(facts: Facts, loss: cst.Call) -> bool:
    """Return whether the notebook itself gathers a loss's negatives from all ranks."""
    given = facts.keyword(loss, GATHERS)
    return given is not None and cst_nodes.code_of(given) != "False"


def can_gather(facts: Facts, loss: cst.Call) -> bool:
    """Return whether a loss can be told to gather: its arguments are in sight, its release is new enough."""
    pins = installs.pins(facts, "sentence-transformers")
    return not installs.keeps_below(pins, GATHERS_SINCE) and not facts.star_dicts(loss)


def gathered(facts: Facts) -> bool:
    """Return whether a batch that is split still is one batch of negatives, gathered from all ranks."""
    return any(gathers_already(facts, call) or can_gather(facts, call) for _, call in uses_negatives(facts))


def batch_sampler(facts: Facts, arguments: cst.Call | cst.Dict) -> cst.BaseExpression | None:
    """Return the sampler that keeps samples apart in a batch which is gathered; None if there is none."""
    if not isinstance(arguments, cst.Call) or not gathered(facts):
        return None
    return facts.keyword(arguments, "batch_sampler")


def is_one_ranks(facts: Facts, arguments: cst.Call | cst.Dict) -> bool:
    """Return whether a batch sampler makes the batch of one rank: the notebook's own accelerator_config decides."""
    if not isinstance(arguments, cst.Call) or batch_sampler(facts, arguments) is None:
        return False
    return facts.keyword(arguments, "accelerator_config") is not None


def _losses(facts: Facts) -> list[tuple[str, cst.Call]]:
    """List the calls, up to the training, of losses that compare the samples of a batch."""
    named = [(facts.qualified(call.func).rpartition(".")[2], call) for call in facts.live_calls]
    return [
        (name, call)
        for name, call in named
        if (_WITHIN.match(name) or _NEGATIVES.search(name)) and not facts.is_after_training(call)
    ]
