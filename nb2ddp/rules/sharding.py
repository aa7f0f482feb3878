"""Let Unsloth shard the model over the ranks, with `--strategy fsdp`; decline what that cannot do.

Each rank holds a share of every layer, and gathers a layer while it computes with it (FSDP2). From the Trainer on,
the model is nowhere whole: what generates with it or saves it runs on every rank, and the other ranks end after
the last such line. Unsloth 2026.10.8 or newer does the sharding, in SFT and continued pretraining, of text and
vision models: a rank whose micro-batch has no image runs the vision tower on an empty one, so that all ranks gather
the same layers. Merging and GGUF need a run of their own, from the adapter that is saved.

.. code-block:: diff

     # --strategy fsdp
     from unsloth import FastLanguageModel
     from trl import SFTTrainer
     model, tokenizer = FastLanguageModel.from_pretrained("m")
     trainer = SFTTrainer(model)
     trainer.train()
    -model.save_pretrained("lora")
    +ddp.save_shards(trainer, "lora")
     tokenizer.save_pretrained("lora")
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.sharding import refusals, saves
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Decline, Edit, Finding
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    if options.strategy != "fsdp":
        return
    yield from (Decline(why, node) for why, node in refusals(facts))
    for call, trainer in saves(facts):
        save = partial(_from_shards, save=helper(facts, "save_shards"), trainer=trainer.value)
        yield Edit(call, "every rank gives its shards, rank 0 writes", save)


def _from_shards(node: cst.CSTNode, save: str, trainer: str) -> cst.CSTNode:
    """Rewrite ``model.save_pretrained(folder)``."""
    call = cst.ensure_type(node, cst.Call)
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    only = call.args[0].with_changes(keyword=None, equal=cst.MaybeSentinel.DEFAULT)
    first = cst.Arg(cst_nodes.expression(trainer), comma=comma)
    return call.with_changes(func=cst_nodes.expression(save), args=[first, only])
