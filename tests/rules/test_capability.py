"""What a T4 cannot do is noted; what it can do, or the notebook decides itself, is not."""

from __future__ import annotations

import pytest

from nb2ddp.options import Options
from nb2ddp.rules.capability import rule
from tests.support.helpers import apply, check_untouched

HEAD = (
    "import torch\n"
    "from accelerate import Accelerator\n"
    "from transformers import AutoModelForCausalLM, FineGrainedFP8Config, pipeline\n"
    "from trl import SFTTrainer\n"
    "from unsloth import FastLanguageModel as F\n"
    "llm = AutoModelForCausalLM.from_pretrained('m')\n"
)

NOTED = {
    "FP8": ("F.from_pretrained('m', load_in_fp8 = True)", "load_in_4bit=True"),
    "FP8 in blocks": ("F.from_pretrained('m', load_in_fp8='block')", "load_in_4bit=True"),
    "weights in FP8": ("F.from_pretrained(model_name='o/Model-8B-FP8')", "16-bit"),
    "an FP8 configuration": ("config = FineGrainedFP8Config()", "BitsAndBytesConfig"),
    "an FP8 type": ("x = y.to(torch.float8_e4m3fn)", "torch.float16"),
    "mixed FP8": ("Accelerator(mixed_precision='fp8')", 'mixed_precision="fp16"'),
    "FlashAttention 2": (
        "AutoModelForCausalLM.from_pretrained('m', attn_implementation='flash_attention_2')",
        "sdpa",
    ),
    "its older switch": ("AutoModelForCausalLM.from_pretrained('m', use_flash_attention_2=True)", "sdpa"),
    "a model in bf16": ("llm.to(torch.bfloat16)", "get_device_capability"),
    "a model in bf16 on a device": ("llm.to('cuda', dtype=torch.bfloat16)", "get_device_capability"),
    "a model's method": ("llm.bfloat16()", "get_device_capability"),
    "a pipeline": ("pipe = pipeline('text-generation', torch_dtype=torch.bfloat16)", "torch.float16"),
    "autocast": ("with torch.autocast('cuda', dtype=torch.bfloat16):\n    pass", "torch.float16"),
    "a model made new": ("AutoModelForCausalLM.from_config(c, dtype=torch.bfloat16)", "torch.float16"),
    "all of it": ("torch.set_default_dtype(torch.bfloat16)", "torch.float16"),
}
LEFT_ALONE = {
    "no FP8": "F.from_pretrained('m', load_in_fp8 = False)",
    "four bits": "F.from_pretrained('o/Model-8B-bnb-4bit', load_in_4bit=True)",
    "a tokenizer's name": "AutoTokenizer.from_pretrained('o/Model-8B-FP8')",
    "another attention": "AutoModelForCausalLM.from_pretrained('m', attn_implementation='sdpa')",
    "bf16 that precision switches": "AutoModelForCausalLM.from_pretrained('m', dtype=torch.bfloat16)",
    "weights that are only stored": "llm.to(torch.bfloat16).save_pretrained('m')\nllm.bfloat16().push_to_hub('m')",
    "a tensor in bf16": "x = torch.zeros(3, dtype=torch.bfloat16)\ny = x.to(torch.bfloat16)",
    "a choice": "llm.to(torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16)",
    "dead code": "if False:\n    F.from_pretrained('m', load_in_fp8 = True)\n    llm.bfloat16()",
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
    assert note.place.line >= 7


@pytest.mark.parametrize(("source", "_"), NOTED.values(), ids=NOTED.keys())
def test_for_a_larger_gpu_nothing_is_noted(source: str, _: str) -> None:
    assert not apply(rule, HEAD + source, options=Options(gpu_memory=40)).notes


def test_what_rank_0_does_after_training_keeps_its_type() -> None:
    train = "trainer = SFTTrainer(llm)\ntrainer.train()\n"
    assert not apply(rule, HEAD + train + "llm.to(torch.bfloat16)").notes
