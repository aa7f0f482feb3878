"""What a T4 cannot do is noted; what it can do, or the notebook decides itself, is not."""

from __future__ import annotations

import pytest

from nb2ddp.options import Options
from nb2ddp.rules import rule_of
from tests.support.helpers import apply, check_untouched

rule = rule_of("capability")

HEAD = (
    "import torch\n"
    "from accelerate import Accelerator\n"
    "from transformers import AutoModelForCausalLM\n"
    "from unsloth import FastLanguageModel as F\n"
)

NOTED = {
    "FP8": ("F.from_pretrained('m', load_in_fp8 = True)", "load_in_4bit=True"),
    "FP8 in blocks": ("F.from_pretrained('m', load_in_fp8='block')", "load_in_4bit=True"),
    "mixed FP8": ("Accelerator(mixed_precision='fp8')", 'mixed_precision="fp16"'),
    "FlashAttention 2": (
        "AutoModelForCausalLM.from_pretrained('m', attn_implementation='flash_attention_2')",
        "sdpa",
    ),
    "its older switch": ("AutoModelForCausalLM.from_pretrained('m', use_flash_attention_2=True)", "sdpa"),
}
LEFT_ALONE = {
    "no FP8": "F.from_pretrained('m', load_in_fp8 = False)",
    "four bits": "F.from_pretrained('o/Model-8B-bnb-4bit', load_in_4bit=True)",
    "another attention": "AutoModelForCausalLM.from_pretrained('m', attn_implementation='sdpa')",
    "dead code": "if False:\n    F.from_pretrained('m', load_in_fp8 = True)",
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE.keys())
def test_what_a_t4_can_do_is_not_noted(source: str) -> None:
    assert not check_untouched(rule, HEAD + source).notes


@pytest.mark.parametrize(("source", "instead"), NOTED.values(), ids=NOTED.keys())
def test_what_a_t4_cannot_do_is_noted_with_what_to_do(source: str, instead: str) -> None:
    (note,) = check_untouched(rule, HEAD + source).notes
    assert "T4" in note.why
    assert instead in note.why
    assert note.place is not None
    assert note.place.line == 5


@pytest.mark.parametrize(("source", "_"), NOTED.values(), ids=NOTED.keys())
def test_for_a_larger_gpu_nothing_is_noted(source: str, _: str) -> None:
    assert not apply(rule, HEAD + source, options=Options(gpu_memory=40)).notes
