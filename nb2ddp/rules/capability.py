"""Note what a T4 cannot compute, before it costs GPU time: FP8, FlashAttention, bf16 without an alternative.

A T4 has compute capability 7.5. FP8 needs 8.9, FlashAttention 8.0, and bf16 also 8.0; below that it is emulated
at best. No code is changed, because the notebook may be meant for another GPU. What the rule ``precision``
changes is not noted again. With ``--gpu-memory`` above 16 the GPU is not a T4, and nothing is noted.

.. code-block:: diff

     from unsloth import FastLanguageModel
     model, tokenizer = FastLanguageModel.from_pretrained("m", load_in_fp8=True)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Finding, Note, Rule
from nb2ddp.source import cst_nodes

T4_MEMORY = 16.0  # GiB; PyTorch sees 15 of them
_FP8 = "a T4 computes no FP8 (that takes compute capability 8.9: an L4, an H100); "
_FLASH = (
    "a T4 runs no FlashAttention (that takes compute capability 8.0: an A100, an L4); "
    'use attn_implementation="sdpa"'
)
_BF16 = (
    "a T4 has no bf16, and here nothing chooses another type; write torch.bfloat16 if "
    "torch.cuda.get_device_capability()[0] >= 8 else torch.float16"
)
_FP8_NAME = re.compile(r"(?<![A-Za-z0-9])fp8(?![A-Za-z0-9])", re.IGNORECASE)
_FP8_CONFIG = re.compile(r"(?:fp8|float8)\w*Config$", re.IGNORECASE)
# `dtype=` of these is the type of a whole model; `precision` handles `from_pretrained`.
_DECIDING = frozenset(
    {"transformers.pipeline", "torch.autocast", "torch.amp.autocast", "torch.set_default_dtype"}
)


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    if options.gpu_memory > T4_MEMORY:
        return
    for node, why in (*_by_keyword(facts), *_fp8(facts), *_bf16(facts)):
        if not facts.is_switched_off(node):
            yield Note(why, node)


# By a keyword of any call: how its code looks where a T4 cannot do it, and what to say.
_KEYWORDS = {
    "load_in_fp8": (
        r"(?!False|None)",
        f"{_FP8}load_in_4bit=True in place of load_in_fp8 loads the model there",
    ),
    "mixed_precision": (r".fp8.$", f'{_FP8}mixed_precision="fp16" trains there'),
    "attn_implementation": (r"[\"'].*flash", _FLASH),
    "use_flash_attention_2": (r"True$", _FLASH),
}


def _by_keyword(facts: Facts) -> Iterator[tuple[cst.CSTNode, str]]:
    for call in facts.live_calls:
        for argument in call.args:
            code, why = _KEYWORDS.get(argument.keyword.value if argument.keyword else "", ("", ""))
            if why and re.match(code, cst_nodes.code_of(argument.value)):
                yield call, why


def _fp8(facts: Facts) -> Iterator[tuple[cst.CSTNode, str]]:
    for call in facts.live_calls:
        if facts.method(call) == "from_pretrained" and _FP8_NAME.search(facts.loaded_name(call)):
            if facts.kind(call) == "model" and facts.keyword(call, "load_in_fp8") is None:
                yield call, f"{_FP8}load the model's 16-bit or 4-bit weights"
        elif _FP8_CONFIG.search(facts.qualified(call.func).rpartition(".")[2]):
            unpacked = facts.keyword(call, "dequantize")
            if unpacked is None or cst_nodes.code_of(unpacked) != "True":  # else it computes in 16 bits
                yield call, f"{_FP8}BitsAndBytesConfig(load_in_4bit=True) quantises there"
    for attribute in facts.attributes:
        if facts.qualified(attribute).startswith("torch.float8") and not facts.is_dead(attribute):
            yield attribute, f"{_FP8}torch.float16 is what it has"


def _bf16(facts: Facts) -> Iterator[tuple[cst.CSTNode, str]]:
    for call in facts.live_calls:
        around = facts.parent(call)
        stored = isinstance(around, cst.Attribute) and around.attr.value in ("save_pretrained", "push_to_hub")
        if stored or facts.is_after_training(call):
            continue
        name, method = facts.qualified(call.func), facts.method(call)
        values = [facts.keyword(call, keyword) for keyword in ("dtype", "torch_dtype")]
        on_model = isinstance(call.func, cst.Attribute) and facts.kind(call.func.value) == "model"
        if on_model and method == "bfloat16":
            yield call, _BF16
        elif name in _DECIDING or method == "from_config" or (on_model and method == "to"):
            given = [*values, *(argument.value for argument in call.args if argument.keyword is None)]
            if any(value is not None and facts.qualified(value) == "torch.bfloat16" for value in given):
                yield call, _BF16


rule = Rule("capability", __doc__, find, balanced=True)
