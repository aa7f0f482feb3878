"""A Trainer trains through one wrapper of ours, made when training starts; `model` stays as it is."""

from __future__ import annotations

import pytest

from nb2ddp import libraries
from nb2ddp.options import Batches, Options
from nb2ddp.rewriting.findings import Change, EvenBatches
from nb2ddp.rules.wrap import rule
from tests.support.helpers import check_rewritten


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


HEAD = "from trl import DPOTrainer, SFTConfig, SFTTrainer\nt = SFTTrainer(llm)\n"
EVEN = {
    "SFT": HEAD,
    "no packing": HEAD + "a = SFTConfig(packing=False)\n",
    "a subclass": "from transformers import Trainer\nclass Mine(Trainer):\n    pass\nt = Mine(llm)\n",
    "Unsloth's": "from unsloth import UnslothTrainer\nt = UnslothTrainer(llm)\n",
    "responses only": (
        HEAD + "from unsloth.chat_templates import train_on_responses_only as only\nt = only(t, a = 1)\n"
    ),
    "made by a function": (
        "from trl import SFTTrainer\ndef make():\n    return SFTTrainer(llm)\nt = make()\n"
    ),
}


def wrapped(train: str, batches: str = "") -> str:
    told = f', batches="{batches}"' if batches else ""
    return (
        f"ddp_model = ddp.wrap_trainer(t{told})"
        "  # nb2ddp: train through one DDP wrapper; `t.model` is still the plain model\n"
        f"{train}\nddp.check_replicas(ddp_model)\n"
    )


IN_TURNS = {
    "GRPO": ("from trl import GRPOTrainer\nt = GRPOTrainer(llm)\n", "GRPO keeps the completions of a prompt"),
    "DPO": ("from trl import DPOTrainer\nt = DPOTrainer(llm)\n", "the loss of DPOTrainer is not a mean over"),
    "packing": (HEAD + "a = SFTConfig(packing=True)\n", "packed rows are full"),
    "group_by_length": (HEAD + "a = SFTConfig(group_by_length=True)\n", "rows are grouped by length"),
    "a stream": (
        HEAD + "from datasets import load_dataset\nd = load_dataset('x', streaming=True)\n",
        "the data are streamed",
    ),
}


def change_of(source: str, batches: Batches) -> Change:
    after = source + wrapped("t.train()", batches)
    (change, _) = check_rewritten(
        rule, source + "t.train()\n", after, options=Options(batches=batches)
    ).changes
    return change


@pytest.mark.parametrize("case", IN_TURNS)
def test_the_report_says_why_batches_stay_as_they_are(case: str) -> None:
    source, reason = IN_TURNS[case]
    change = change_of(source, "dealt")
    assert change.why.startswith(
        f"train through one DDP wrapper; ranks take the notebook's micro-batches in turns ({reason}"
    )
    assert change.data is None


@pytest.mark.parametrize("source", EVEN.values(), ids=EVEN.keys())
def test_the_report_says_that_micro_batches_are_dealt(source: str) -> None:
    change = change_of(source, "dealt")
    assert "the notebook's micro-batches are dealt to the ranks by length" in change.why
    assert change.data == EvenBatches()


def test_the_report_says_that_even_batches_round_otherwise() -> None:
    change = change_of(HEAD, "even")
    assert "shared out by their lengths, which rounds losses otherwise in bf16" in change.why
    assert change.data == EvenBatches()


def test_micro_batches_are_taken_in_turns_unless_told_otherwise() -> None:
    (change, _) = check_rewritten(rule, HEAD + "t.train()\n", HEAD + wrapped("t.train()")).changes
    assert (change.why, change.data) == ("train through one DDP wrapper", None)
