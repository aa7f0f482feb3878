"""bf16 written as a constant becomes a test of the GPU: a T4 has no bf16.

.. code-block:: diff

     from transformers import TrainingArguments
    -args = TrainingArguments("out", bf16=True)
    +args = TrainingArguments("out", bf16=has_bf16, fp16=not has_bf16)
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp import cstkit
from nb2ddp.facts import Facts
from nb2ddp.rewrite import Edit, Finding, Need, Options, Rule

_DTYPE_KEYWORDS = ("dtype", "torch_dtype", "bnb_4bit_compute_dtype")


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    has_bf16 = facts.our("has_bf16")
    for call in facts.live_calls:
        bf16 = facts.keyword(call, "bf16")
        if (
            isinstance(bf16, cst.Name)
            and bf16.value == "True"
            and facts.kind(call) in ("arguments", "trainer")
        ):

            def switch(node: cst.CSTNode) -> cst.CSTNode:
                assert isinstance(node, cst.Call)
                node = cstkit.with_keyword(node, "bf16", has_bf16)
                return cstkit.with_keyword(node, "fp16", f"not {has_bf16}", "nb2ddp: a T4 has no bf16")

            yield Need("has_bf16")
            yield Edit(call, "a T4 has no bf16; it trains in fp16 there", switch)
        for keyword in _DTYPE_KEYWORDS:
            dtype = facts.keyword(call, keyword)
            if dtype is None or facts.qualified(dtype) != "torch.bfloat16" or facts.is_after_training(call):
                continue
            if facts.method(call) != "from_pretrained" and not keyword.startswith("bnb"):
                continue
            code = f"torch.bfloat16 if {has_bf16} else torch.float16"
            yield Need("has_bf16")
            yield Edit(
                dtype, "a T4 has no bf16; it computes in fp16 there", lambda _, c=code: cstkit.expression(c)
            )


rule = Rule("precision", __doc__, find)
