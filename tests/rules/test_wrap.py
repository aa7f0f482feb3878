"""A Trainer trains through one wrapper of ours, made when training starts; `model` stays as it is."""

from __future__ import annotations

import pytest

from nb2ddp import libraries
from nb2ddp.rewriting.findings import Batch
from nb2ddp.rules import rule_of
from tests.support.helpers import check_rewritten, converted

rule = rule_of("wrap")


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


SOURCE = (
    "from trl import SFTConfig, SFTTrainer\na = SFTConfig(per_device_train_batch_size=2{})\n"
    "t = SFTTrainer(llm, args=a)\n"
)


@pytest.mark.parametrize(
    ("more", "batch"),
    [
        ("", Batch(2, 1, in_turns=True)),
        (", gradient_accumulation_steps=4", Batch(2, 4, in_turns=True)),
        (", gradient_accumulation_steps=n", None),
        (", no_cuda=True", None),  # on no GPU at all
        (")\na.per_device_train_batch_size = (4", None),
        (")\na.per_gpu_train_batch_size = (4", None),  # as Transformers called it
    ],
)
def test_the_report_knows_the_batch_that_is_computed_in_turns(more: str, batch: Batch | None) -> None:
    source = SOURCE.format(more)
    after = (
        "ddp_model = ddp.wrap_trainer(t)"
        "  # nb2ddp: the ranks divide each step, and sum the gradients\n"
        "t.train()\nddp.check_replicas(ddp_model)\n"
    )
    (change, _) = check_rewritten(rule, source + "t.train()\n", source + after).changes
    assert change.data == batch


def test_a_batch_that_every_rank_computes_is_not_called_divided() -> None:
    source = """
    class Own(SFTTrainer):
        def compute_loss(self, model, inputs, **more):
            open("log", "a").write("x")
            return super().compute_loss(model, inputs, **more)
    t = Own(llm, args=a)
    t.train()
    """
    conversion = converted(SOURCE.format(""), source)
    (change,) = (change for change in conversion.changes if "every rank computes" in change.why)
    assert change.data is None
