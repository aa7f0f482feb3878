"""``unsloth_train(trainer)`` refuses more than one process; ``trainer.train()`` does the same work.

Its fix for gradient accumulation has been in Transformers since 4.46.

.. code-block:: diff

     from unsloth import unsloth_train
     from trl import SFTTrainer
     trainer = SFTTrainer(model)
    -stats = unsloth_train(trainer)
    +stats = trainer.train()
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp import knowledge
from nb2ddp.facts import Facts
from nb2ddp.rewrite import Edit, Finding, Options, Rule


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for call in facts.calls:
        if facts.qualified(call.func) in knowledge.COLLECTIVE_FUNCTIONS and call.args:
            yield Edit(call, "unsloth_train refuses more than one process", _as_method)


def _as_method(node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.Call)
    trainer, *rest = node.args
    return node.with_changes(func=cst.Attribute(trainer.value, cst.Name("train")), args=rest)


rule = Rule("unsloth-train", __doc__, find)
