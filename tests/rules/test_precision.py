"""bf16 as a constant fails on a T4; what the notebook decides itself is left to it."""

from __future__ import annotations

import pytest

from nb2ddp.rules.precision import rule
from tests.support.helpers import check_settles, check_untouched

HEAD = (
    "import torch\n"
    "from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TrainingArguments\n"
    "from trl import SFTConfig, SFTTrainer\n"
)

DECIDED_ALREADY = {
    "a test of the notebook's own": 'SFTConfig("o", fp16=not is_bf16(), bf16=is_bf16())',
    "fp16": 'SFTConfig("o", fp16=True)',
    "no bf16": 'SFTConfig("o", bf16=False)',
    "arguments of something else": "render(bf16=True)",
    "a dict that becomes no arguments": 'kw = {"bf16": True}\nrender(**kw)',
    "Unsloth's own choice": (
        'from unsloth import FastLanguageModel\nFastLanguageModel.from_pretrained("m", dtype=None)'
    ),
    "a cast of a tensor": "x = x.to(torch.bfloat16)",
    "float16": 'AutoModelForCausalLM.from_pretrained("m", torch_dtype=torch.float16)',
    "dead code": 'if False:\n    SFTConfig("o", bf16=True)\n    AutoModelForCausalLM.from_pretrained('
    '"m", dtype=torch.bfloat16)',
}

ARGUMENTS = {
    "one line": (
        'args = SFTConfig("o", bf16=True)',
        'args = SFTConfig("o", bf16=ddp.has_bf16, fp16=not ddp.has_bf16)',
    ),
    "one per line with a comment": (
        'args = TrainingArguments(\n    bf16 = True,  # A100\n    output_dir = "o",\n)',
        'args = TrainingArguments(\n    bf16 = ddp.has_bf16,  # A100\n    output_dir = "o",\n'
        "    fp16 = not ddp.has_bf16,  # nb2ddp: a T4 has no bf16\n)",
    ),
    "fp16 given too": (
        "SFTConfig(fp16 = False, bf16 = True)",
        "SFTConfig(fp16 = not ddp.has_bf16, bf16 = ddp.has_bf16)",
    ),
    "with tf32": (
        "SFTConfig(bf16=True, tf32=True)",
        "SFTConfig(bf16=ddp.has_bf16, tf32=ddp.has_bf16, fp16=not ddp.has_bf16)",
    ),
    "evaluated in bf16": (
        "SFTConfig(bf16=is_bf16(), bf16_full_eval=True)",
        "SFTConfig(bf16=is_bf16(), bf16_full_eval=ddp.has_bf16)",
    ),
    "inside the trainer": (
        'SFTTrainer(model, args=SFTConfig("o", bf16=True))',
        'SFTTrainer(model, args=SFTConfig("o", bf16=ddp.has_bf16, fp16=not ddp.has_bf16))',
    ),
    "a dict": (
        'kw = {"bf16": True, "output_dir": "o"}\nSFTConfig(**kw)',
        'kw = {"fp16": not ddp.has_bf16, "bf16": ddp.has_bf16, "output_dir": "o"}\nSFTConfig(**kw)',
    ),
    "dict()": (
        'kw = dict(bf16=True)\nSFTConfig("o", **kw)',
        'kw = dict(bf16=ddp.has_bf16, fp16=not ddp.has_bf16)\nSFTConfig("o", **kw)',
    ),
    "one dict for two": (
        'kw = dict(bf16=True)\nSFTConfig("a", **kw)\nSFTConfig("b", **kw)',
        'kw = dict(bf16=ddp.has_bf16, fp16=not ddp.has_bf16)\nSFTConfig("a", **kw)\nSFTConfig("b", **kw)',
    ),
    "functools.partial": (
        "from functools import partial\nmake = partial(SFTConfig, bf16=True)",
        "from functools import partial\nmake = partial(SFTConfig, bf16=ddp.has_bf16, fp16=not ddp.has_bf16)",
    ),
    "a subclass of the user": (
        'class Mine(TrainingArguments):\n    pass\nMine("o", bf16=True)',
        'class Mine(TrainingArguments):\n    pass\nMine("o", bf16=ddp.has_bf16, fp16=not ddp.has_bf16)',
    ),
}

LOADS = {
    "torch_dtype": (
        'AutoModelForCausalLM.from_pretrained("m", torch_dtype=torch.bfloat16)',
        'AutoModelForCausalLM.from_pretrained("m", '
        "torch_dtype=torch.bfloat16 if ddp.has_bf16 else torch.float16)",
    ),
    "dtype as text": (
        'AutoModelForCausalLM.from_pretrained("m", dtype="bfloat16")',
        'AutoModelForCausalLM.from_pretrained("m", dtype="bfloat16" if ddp.has_bf16 else "float16")',
    ),
    "a variable": (
        'dtype = torch.bfloat16  # fast\nAutoModelForCausalLM.from_pretrained("m", dtype = dtype)',
        "dtype = torch.bfloat16 if ddp.has_bf16 else torch.float16  # fast\n"
        'AutoModelForCausalLM.from_pretrained("m", dtype = dtype)',
    ),
    "quantised": (
        "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)",
        "BitsAndBytesConfig(load_in_4bit=True, "
        "bnb_4bit_compute_dtype=torch.bfloat16 if ddp.has_bf16 else torch.float16)",
    ),
    "Accelerate": (
        'from accelerate import Accelerator\nAccelerator(mixed_precision="bf16")',
        'from accelerate import Accelerator\nAccelerator(mixed_precision="bf16" if ddp.has_bf16 else "fp16")',
    ),
}


@pytest.mark.parametrize("source", DECIDED_ALREADY.values(), ids=DECIDED_ALREADY.keys())
def test_what_is_no_constant_of_this_run_is_left_alone(source: str) -> None:
    check_untouched(rule, HEAD + source)


@pytest.mark.parametrize(("before", "after"), ARGUMENTS.values(), ids=ARGUMENTS.keys())
def test_bf16_in_training_arguments_is_asked_of_the_gpu(before: str, after: str) -> None:
    check_settles(rule, HEAD + before, HEAD + after)


@pytest.mark.parametrize(("before", "after"), LOADS.values(), ids=LOADS.keys())
def test_a_model_is_loaded_in_what_the_gpu_can(before: str, after: str) -> None:
    check_settles(rule, HEAD + before, HEAD + after)


def test_a_model_that_rank_0_loads_after_training_keeps_its_type() -> None:
    code = HEAD + (
        "trainer = SFTTrainer(model)\n"
        "trainer.train()\n"
        'AutoModelForCausalLM.from_pretrained("m", dtype=torch.bfloat16)\n'
    )
    check_untouched(rule, code)
