"""A Trainer trains through one wrapper of ours, made when training starts; `model` stays as it is."""

from __future__ import annotations

import pytest

from nb2ddp import libraries


@pytest.mark.parametrize(
    ("name", "experts"),
    {
        "unsloth/Qwen3-30B-A3B-Instruct-2507": True,
        "unsloth/gpt-oss-20b": True,
        "mistralai/Mixtral-8x7B-v0.1": True,
        "unsloth/gemma-4-26B-A4B-it": True,
        "deepseek-ai/DeepSeek-V3.1": True,
        "ibm/PowerMoE-3b": True,
        "unsloth/DeepSeek-R1-Distill-Llama-8B": False,
        "unsloth/DeepSeek-R1-0528-Qwen3-8B": True,  # not told from the mixture that it was distilled from
        "unsloth/Meta-Llama-3.1-8B-bnb-4bit": False,
        "unsloth/gemma-3-270m-it": False,
        "unsloth/Phi-4": False,
    }.items(),
)
def test_a_mixture_of_experts_is_known_by_its_name(name: str, experts: bool) -> None:
    assert libraries.has_experts(name) is experts
