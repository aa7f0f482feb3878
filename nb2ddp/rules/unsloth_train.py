"""Call ``trainer.train()`` in place of ``unsloth_train(trainer)``, which refuses more than one process.

Both train the same: the fix for gradient accumulation in ``unsloth_train`` is in Transformers since 4.46.

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

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Edit, Finding, Rule
from nb2ddp.source import cst_nodes


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for call in facts.calls:
        if facts.qualified(call.func) in libraries.COLLECTIVE_FUNCTIONS and _trainer(call) is not None:
            yield Edit(call, "unsloth_train refuses more than one process", _as_method)


def _trainer(call: cst.Call) -> cst.Arg | None:
    """Return the argument that is the trainer: the first one, or the keyword of that name."""
    for argument in call.args:
        if not argument.star and (argument.keyword is None or argument.keyword.value == "trainer"):
            return argument
    return None


def _as_method(node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.Call)
    trainer = _trainer(node)
    assert trainer is not None
    method = cst.Attribute(cst_nodes.parenthesised(trainer.value), cst.Name("train"))
    rest = [argument for argument in node.args if argument is not trainer]
    if not rest:
        return cst.Call(method, lpar=node.lpar, rpar=node.rpar)
    if trainer is node.args[-1]:
        rest[-1] = rest[-1].with_changes(
            comma=trainer.comma, whitespace_after_arg=trainer.whitespace_after_arg
        )
    return node.with_changes(func=method, args=rest)


rule = Rule("unsloth-train", __doc__, find)
