"""Keep losses that compare the samples of a batch whole, where the batch itself is split over the ranks.

With more accumulation steps than one, ranks divide those and each batch stays whole. With one, each rank
gets a part of the batch, and a sample would be compared with that part alone: the negatives are gathered
from all ranks, and a batch sampler makes the batch of all ranks, of which each takes its part.

.. code-block:: diff

     from sentence_transformers import SentenceTransformerTrainingArguments, losses
    -loss = losses.MultipleNegativesRankingLoss(model)
    +loss = losses.MultipleNegativesRankingLoss(model, gather_across_devices=world_size > 1)
     args = SentenceTransformerTrainingArguments(per_device_train_batch_size=64, dataloader_drop_last=True)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import libcst as cst

from nb2ddp.analysis import in_batch
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.training_arguments import DROPS_LAST, recipes
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Edit, Finding, Note, Rule
from nb2ddp.source import cst_nodes


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    if options.batch == "scale":
        return
    split = [(node, given) for node, given in recipes(facts) if given and in_batch.splits_the_batch(given)]
    if not split:
        return
    for name, call in in_batch.compares_within(facts):
        yield Note(
            f"{name} compares the samples of a batch with one another. With 1 accumulation step the "
            "batch itself is split, so a sample is compared only with those on its GPU, and the loss differs. "
            "--batch scale keeps each GPU's batch whole, with more data in a step",
            call,
        )
    for name, call in in_batch.uses_negatives(facts):
        yield from _gathered(facts, name, call)
    if in_batch.gathered(facts):
        for node, given in split:
            yield from _parts(facts, node, given)
            yield from _sampled(facts, node)


def _gathered(facts: Facts, name: str, loss: cst.Call) -> Iterator[Finding]:
    """Yield the edit with which a loss's negatives come from all ranks, or a note that they do not."""
    if in_batch.gathers_already(facts, loss):
        return
    if not in_batch.can_gather(facts, loss):
        yield Note(
            f"{name} uses the other samples of a batch as negatives. With 1 accumulation step the batch "
            "itself is split: on two GPUs a sample has half of its negatives, and the loss differs. "
            f"{in_batch.GATHERS}=True here (Sentence Transformers {in_batch.GATHERS_SINCE} or newer) gathers "
            "them from all ranks",
            loss,
        )
        return
    yield Edit(
        loss,
        "the batch is split, and its samples are still negatives of one another",
        partial(
            _with_keyword,
            name=in_batch.GATHERS,
            value=f"{facts.our('world_size')} > 1",
            comment="nb2ddp: negatives from all ranks",
        ),
    )


def _parts(
    facts: Facts, node: cst.Call | cst.Dict, given: Mapping[str, cst.BaseExpression]
) -> Iterator[Note]:
    """Note what is another run where ranks compute parts of a batch of in-batch negatives."""
    if DROPS_LAST not in given:
        yield Note(
            "on several GPUs Sentence Transformers drops an epoch's last batch if it is not full",
            node,
        )
    asked = [facts.keyword(node, key) for key in ("bf16", "fp16")] if isinstance(node, cst.Call) else []
    if any(value is not None and cst_nodes.code_of(value) != "False" for value in asked):
        yield Note(
            "each GPU computes a part of a batch, which rounds otherwise in 16 bits: losses are near the notebook's "
            "(by about 2e-4 of the loss), not equal",
            node,
        )


def _sampled(facts: Facts, node: cst.Call | cst.Dict) -> Iterator[Finding]:
    """Yield the finding for a batch sampler: samples that it keeps apart must not meet in the batch of all ranks.

    It makes the notebook's batches, and Accelerate gives each rank a part of each.
    """
    sampler = in_batch.batch_sampler(facts, node)
    if sampler is None:
        return
    if in_batch.is_one_ranks(facts, node):
        yield Note(
            "this batch sampler makes the batch of one rank: samples that it keeps apart can meet in the batch "
            'of all ranks. "split_batches": True in accelerator_config splits its batches over the ranks '
            "instead",
            sampler,
        )
        return
    yield Edit(
        node,
        "the sampler makes the notebook's batches, and each rank takes its part of them",
        partial(
            _with_keyword,
            name="accelerator_config",
            value=f'{{"split_batches": {facts.our("world_size")} > 1}}',
            comment="nb2ddp: each rank takes its part of a batch",
        ),
    )


def _with_keyword(node: cst.CSTNode, name: str, value: str, comment: str) -> cst.CSTNode:
    return cst_nodes.with_keyword(cst.ensure_type(node, cst.Call), name, value, comment)


rule = Rule("in-batch", __doc__, find)
