"""Whether a copy of the model fits on each GPU: an estimate, from the model's name and how it is loaded.

Nothing is changed for it. ``--gpu-memory`` tells how large a GPU is, ``--strategy balanced`` spreads one
model over all of them instead.

.. code-block:: diff

     from unsloth import FastLanguageModel
     model, tokenizer = FastLanguageModel.from_pretrained("org/Model-70B", load_in_4bit=True)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Finding, Note, Rule, TooLarge
from nb2ddp.source import cst_nodes

# GiB for each billion parameters: weights, with the layers that stay in 16 bits and the scales of the blocks.
_PER_BILLION = {4: 0.65, 8: 1.1, 16: 1.87}
_FULL = 9.4  # full fine-tuning in 16 bits: weights, gradients, an 8-bit optimizer, a 32-bit copy
_REST = 2.0  # GiB: CUDA itself, the adapter with its optimizer, activations of a small batch
_SIZE = re.compile(r"(?<![A-Za-z0-9.])[EeAa]?(\d+(?:[._]\d+)?)\s*([BbMm])(?![A-Za-z])")


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    if options.strategy != "ddp":
        return
    for call in facts.live_calls:
        if facts.method(call) != "from_pretrained" or facts.kind(call) != "model":
            continue
        if facts.is_after_training(call):
            continue
        name = facts.loaded_name(call)
        billions = parameters(name)
        if billions is None:
            continue
        bits = 4 if "4bit" in name.lower() else _bits(facts, call)
        full = _is_true(facts.keyword(call, "full_finetuning"))
        needed = billions * (_FULL if full else _PER_BILLION[bits]) + _REST
        if needed > options.gpu_memory:
            how = "full fine-tuning" if full else f"{bits} bits"
            yield Note(
                f"{billions:g} billion parameters, {how}: about {needed:.0f} GiB on each GPU, which has "
                f"{options.gpu_memory:g} (--gpu-memory). `--strategy balanced` spreads one model over all "
                "GPUs in one process: no faster than one GPU, and room for the model",
                call,
                TooLarge(needed, options.gpu_memory),
            )


def parameters(name: str) -> float | None:
    """Billions of parameters that a model's name tells: 0.27 for "x-270M"; of several the largest."""
    found = [
        float(number.replace("_", ".")) / (1000 if unit in "Mm" else 1)
        for number, unit in _SIZE.findall(name)
    ]
    return max(found, default=None)


def _bits(facts: Facts, call: cst.Call) -> int:
    four, eight = facts.keyword(call, "load_in_4bit"), facts.keyword(call, "load_in_8bit")
    if _is_true(eight):
        return 8
    if _is_true(four) or facts.keyword(call, "quantization_config") is not None:
        return 4
    package = facts.qualified(call.func).partition(".")[0]
    return 4 if four is None and package in libraries.UNSLOTH_PACKAGES else 16  # Unsloth's default


def _is_true(node: cst.BaseExpression | None) -> bool:
    return node is not None and cst_nodes.code_of(node) == "True"


rule = Rule("memory", __doc__, find)
