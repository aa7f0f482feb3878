"""Fixes for versions that do not go together: where the pins need them, and only there."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types

import pytest

from nb2ddp.options import Options
from nb2ddp.rules.compatibility import rule
from nb2ddp.runtime.compatibility import drop_weight_tying
from tests.support.helpers import apply, check_rewritten, check_untouched, converted

LOAD = (
    "from unsloth import FastLanguageModel as F\n"
    "from trl import SFTConfig, SFTTrainer\n"
    'llm, tok = F.from_pretrained("m")\n'
)
ADAPT = "llm = F.get_peft_model(llm, r = 16)\n"
DROPPED = "ddp.drop_weight_tying()  # nb2ddp: Unsloth passes an argument that this PEFT does not have\n"
MOVED = "ddp.move_attention_bias()  # nb2ddp: this Unsloth leaves it on the first GPU\n"
BALANCED = Options(strategy="balanced")


def install(packages: str) -> str:
    return f"get_ipython().system({f'pip install {packages}'!r})\n"


OLD_PEFT = [
    "unsloth peft==0.17.1",
    "unsloth peft==0.17.*",
    '--no-deps unsloth==2026.1.4 "peft<0.18.0"',
    '"unsloth[colab-new]>=2025.11.1" "peft >= 0.7, <= 0.17"',
]
NOT_NEEDED = [
    "unsloth",
    "unsloth peft",
    "unsloth peft==0.18.0",
    'unsloth "peft>=0.17"',
    "unsloth==2025.11.6 peft==0.17.1",
    "unsloth==2026.10.9 peft==0.17.1",
    '"unsloth>=2026.8.20" peft==0.17.1',
    "unsloth {peft}",
    "unsloth # peft==0.17.1",
]


@pytest.mark.parametrize("packages", NOT_NEEDED)
def test_other_pins_need_nothing(packages: str) -> None:
    check_untouched(rule, install(packages) + LOAD + ADAPT)


def test_without_adapters_or_unsloth_nothing_is_needed() -> None:
    check_untouched(rule, install("unsloth peft==0.17.1") + LOAD)
    check_untouched(
        rule, install("peft==0.17.1") + "from peft import get_peft_model\nx = get_peft_model(y)\n"
    )


def test_a_notebook_that_ties_weights_itself_is_left_alone() -> None:
    adapt = "llm = F.get_peft_model(llm, ensure_weight_tying = True)\n"
    check_untouched(rule, install("unsloth==2026.1.4 peft==0.17.1") + LOAD + adapt)


@pytest.mark.parametrize("packages", OLD_PEFT)
def test_an_old_peft_gets_no_argument_that_it_does_not_know(packages: str) -> None:
    head = install(packages) + LOAD
    check_rewritten(rule, head + ADAPT, head + DROPPED + ADAPT)


@pytest.mark.parametrize("version", ["==2025.12.4", "==2026.1.4", "<2026.8.20"])
def test_a_spread_model_gets_its_attention_bias_moved(version: str) -> None:
    head, _, load = (install(f'"unsloth{version}"') + LOAD).rpartition("llm, tok")
    result = apply(rule, head + "llm, tok" + load, options=BALANCED)
    assert result.code[1] == head + MOVED + "llm, tok" + load
    check_untouched(rule, head + "llm, tok" + load)  # under DDP each rank has one GPU


@pytest.mark.parametrize("version", ["", ">=2026.1.4", "==2026.10.9", "==2025.11.6"])
def test_an_unsloth_that_moves_it_or_has_none_is_left_alone(version: str) -> None:
    check_untouched(rule, install(f'"unsloth{version}"') + LOAD, options=BALANCED)


def script(packages: str, **options: object) -> str:
    trainer = 'trainer = SFTTrainer(llm, args=SFTConfig("o"))\ntrainer.train()\n'
    return converted(install(packages), LOAD + ADAPT, trainer, **options).files["train_ddp.py"]


def test_the_configuration_keeps_the_parameters_that_unsloth_looks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @dataclasses.dataclass
    class LoraConfig:  # as PEFT before 0.18 has it
        r: int = 8
        use_rslora: bool = False

    old = types.ModuleType("peft")
    old.LoraConfig = LoraConfig  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "peft", old)
    with pytest.raises(TypeError):
        LoraConfig(r=4, ensure_weight_tying=False)  # type: ignore[call-arg]
    drop_weight_tying()
    made = LoraConfig(r=4, use_rslora=True, ensure_weight_tying=False)  # type: ignore[call-arg]
    assert made == LoraConfig(4, True)
    assert "use_rslora" in inspect.signature(LoraConfig).parameters


def test_the_script_has_a_fix_only_where_the_pins_need_it() -> None:
    assert "ddp.drop_weight_tying()" in script("unsloth peft==0.17.1")
    for name in ("drop_weight_tying", "move_attention_bias"):
        assert name not in script("unsloth peft==0.18.0")
    assert "ddp.move_attention_bias()" in script("unsloth==2026.1.4", strategy="balanced")
