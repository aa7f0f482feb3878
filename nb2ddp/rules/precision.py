"""Choose between bf16 and fp16 at run time, where the notebook fixes bf16: a T4 has no bf16.

.. code-block:: diff

     from transformers import TrainingArguments
    -args = TrainingArguments("out", bf16=True)
    +args = TrainingArguments("out", bf16=ddp.has_bf16, fp16=not ddp.has_bf16)
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.flow import item_of
from nb2ddp.analysis.training_arguments import makes_arguments
from nb2ddp.analysis.training_loops import trains_whole
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Edit, Finding
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes

_COMPUTES = "a T4 has no bf16; it computes in fp16 there"
_DTYPE_KEYWORDS = ("dtype", "torch_dtype", "bnb_4bit_compute_dtype")
_INSTEAD = {"bfloat16": "float16", "bf16": "fp16"}
# Arguments that fail on a GPU without bf16.
_REFUSED = ("bf16_full_eval", "tf32")


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    loads = list(_dtypes(facts))
    if trains_whole(facts, [call for call, _ in loads]):  # in fp16 AdamW divides such weights by 0
        return
    dtypes = [edit for _, edit in loads]
    casts = _casts(facts) if dtypes else ()
    yield from {finding.node: finding for finding in (*casts, *dtypes, *_arguments(facts))}.values()


def _arguments(facts: Facts) -> Iterator[Edit]:
    """Yield edits of training arguments with ``bf16=True``, or that need bf16, as keywords or in a dict."""
    has_bf16 = helper(facts, "has_bf16")
    for call in facts.live_calls:
        if facts.kind(call) not in ("arguments", "trainer") and not makes_arguments(facts, call):
            continue
        for node in filter(None, (call, *facts.star_dicts(call))):
            if cst_nodes.is_word(facts.value(item_of(node, "bf16")), "True"):
                values, why = {"bf16": has_bf16, "fp16": f"not {has_bf16}"}, "a T4 has no bf16"
                yield Edit.items(node, f"{why}; it trains in fp16 there", values, f"nb2ddp: {why}")
            for name in _REFUSED:
                if (value := item_of(node, name)) is not None and cst_nodes.is_word(value, "True"):
                    yield Edit.to(value, f"a T4 has no {name[:4]}", has_bf16)


def _dtypes(facts: Facts) -> Iterator[tuple[cst.Call, Edit]]:
    """Yield edits of ``dtype=torch.bfloat16`` and the like, with the calls that load a model."""
    has_bf16 = helper(facts, "has_bf16")
    for call in (call for call in facts.live_calls if not facts.is_after_training(call)):
        keywords = [k for k in _DTYPE_KEYWORDS if facts.method(call) == "from_pretrained" or k[:3] == "bnb"]
        if facts.qualified(call.func).rpartition(".")[2] == "Accelerator":
            keywords = ["mixed_precision"]
        for dtype in filter(None, (facts.keyword(call, keyword) for keyword in keywords)):
            text = cst_nodes.string_value(dtype)
            if text in _INSTEAD:
                yield call, Edit.to(dtype, _COMPUTES, f'"{text}" if {has_bf16} else "{_INSTEAD[text]}"')
            else:
                yield from ((call, edit) for edit in _chosen(facts, dtype))


def _casts(facts: Facts) -> Iterator[Edit]:
    """Yield edits of what is cast to bfloat16 for such a model: ``inputs.to("cuda", dtype=torch.bfloat16)``."""
    casts = (c for c in facts.live_calls if facts.method(c) == "to" and not facts.is_after_training(c))
    given = (argument.value for call in casts if facts.kind(call) != "model" for argument in call.args)
    yield from (edit for value in given for edit in _chosen(facts, value))


def _chosen(facts: Facts, dtype: cst.BaseExpression) -> Iterator[Edit]:
    """Yield the edit of ``torch.bfloat16``, where it is bound."""
    value, torch = facts.bound(dtype), facts.our("torch")
    if value is not None and facts.qualified(value) == "torch.bfloat16":
        code = f"{torch}.bfloat16 if {helper(facts, 'has_bf16')} else {torch}.float16"
        yield Edit.to(value, _COMPUTES, code)
