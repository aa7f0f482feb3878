"""Whether a copy of the model fits on each GPU."""

from __future__ import annotations

import pytest

from nb2ddp import libraries
from nb2ddp.options import Options
from nb2ddp.rules import rule_of
from tests.support.helpers import apply

rule = rule_of("memory")

UNSLOTH = "from unsloth import FastLanguageModel as F\n"


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("org/Model-8B-Instruct", 8),
        ("org/model-0.6b-bnb-4bit", 0.6),
        ("org/tiny-270m-it", 0.27),
        ("org/Thing-26B-A4B", 26),
        ("org/mini-E2B-it", 2),
        ("org/base-uncased", None),
        ("org/v3.1", None),
        ("./outputs", None),
        ("org/4bit", None),
    ],
)
def test_a_name_tells_the_size(name: str, billions: float | None) -> None:
    assert libraries.billions(name) == billions


@pytest.mark.parametrize(
    ("load", "fits"),
    [
        ("F.from_pretrained('o/m-8B')", True),  # Unsloth loads in 4 bits unless told otherwise
        ("F.from_pretrained('o/m-8B', load_in_4bit=False)", False),
        ("F.from_pretrained('o/m-8B-bnb-4bit', load_in_4bit=False)", True),
        ("F.from_pretrained('o/m-32B', load_in_4bit=True)", False),
        ("F.from_pretrained('o/m-12B', load_in_8bit=True)", False),
        ("F.from_pretrained('o/m-8B', load_in_fp8=True, load_in_4bit=False)", True),
        ("F.from_pretrained('o/m-8B', load_in_16bit=True)", False),
        ("F.from_pretrained('o/m-0.5B', full_finetuning=True)", True),
        ("F.from_pretrained('o/unknown')", True),
    ],
)
def test_what_does_not_fit_on_a_t4_is_noted(load: str, fits: bool) -> None:
    notes = apply(rule, f"{UNSLOTH}model, tok = {load}\n").notes
    assert bool(notes) != fits
    assert all("--strategy balanced" in note.why for note in notes)


def test_the_name_is_followed_through_a_variable() -> None:
    assert apply(
        rule, f"{UNSLOTH}name = 'o/m-70B'\nmodel, tok = F.from_pretrained(model_name = name)\n"
    ).notes


def test_a_larger_gpu_holds_more() -> None:
    load = f"{UNSLOTH}model, tok = F.from_pretrained('o/m-32B')\n"
    assert not apply(rule, load, options=Options(gpu_memory=80)).notes


def test_a_model_that_is_spread_needs_no_note() -> None:
    load = f"{UNSLOTH}model, tok = F.from_pretrained('o/m-32B')\n"
    assert not apply(rule, load, options=Options(strategy="balanced")).notes


HUB = "import torch\nfrom transformers import AutoModelForCausalLM as A, AutoConfig, BitsAndBytesConfig\n"
ADAPTER = "from peft import get_peft_model\nmodel = get_peft_model(model, config)\n"


def why(*cells: str, gpu_memory: float = 15) -> str:
    """Return the one note on some cells; "" where there is none."""
    notes = apply(rule, *cells, options=Options(gpu_memory=gpu_memory)).notes
    assert len(notes) <= 1
    return notes[0].why if notes else ""


@pytest.mark.parametrize(
    ("before", "load", "fits"),
    [
        ("load_in_4bit = True", "F.from_pretrained('o/m-8B', load_in_4bit = load_in_4bit)", True),
        ("load_in_4bit = False", "F.from_pretrained('o/m-8B', load_in_4bit = load_in_4bit)", False),
        ("dtype = None", "F.from_pretrained('o/m-8B', dtype = dtype)", True),
        ("load = dict(load_in_4bit=False)", "F.from_pretrained('o/m-8B', **load)", False),
        ("load = {'load_in_4bit': False}", "F.from_pretrained('o/m-8B', **load)", False),
        ("load = {'model_name': 'o/m-70B'}", "F.from_pretrained(**load)", False),
        (
            "C = {'load': {'four': False}}",
            "F.from_pretrained('o/m-8B', load_in_4bit=C['load']['four'])",
            False,
        ),
        ("class C:\n    four = False", "F.from_pretrained('o/m-8B', load_in_4bit=C.four)", False),
        ("class C:\n    name = 'o/m-70B'\nc = C()", "F.from_pretrained(c.name)", False),
        ("big = True", "F.from_pretrained('o/m-70B' if big else 'o/m-1B')", False),
        ("big = False", "F.from_pretrained('o/m-70B' if big else 'o/m-1B')", True),
    ],
)
def test_a_setting_is_followed_to_where_it_is_written(before: str, load: str, fits: bool) -> None:
    assert bool(why(f"{UNSLOTH}{before}\n", f"model, tok = {load}\n")) != fits


def test_a_parameter_has_what_the_one_call_gives() -> None:
    function = "def load(name, four):\n    return F.from_pretrained(name, load_in_4bit=four)\n"
    assert not why(UNSLOTH + function, "model, tok = load('o/m-8B', True)\n")
    assert why(UNSLOTH + function, "model, tok = load('o/m-8B', False)\n")


@pytest.mark.parametrize("four", ["os.environ['FOUR'] == '1'", "choose()", "args.four"])
def test_a_setting_that_cannot_be_seen_gives_both_figures(four: str) -> None:
    note = why(f"{UNSLOTH}four = {four}\nmodel, tok = F.from_pretrained('o/m-8B', load_in_4bit=four)\n")
    assert (
        "if it is loaded in 4 bits: about 7 GiB on each GPU, or if it is loaded in 16 bits: about 17" in note
    )
    assert "the smaller one fits" in note


@pytest.mark.parametrize(
    ("config", "fits"),
    [
        ("BitsAndBytesConfig(load_in_4bit=True)", True),
        ("BitsAndBytesConfig(load_in_8bit=True)", True),
        ("BitsAndBytesConfig()", False),
        ("None", False),
    ],
)
def test_a_quantization_config_is_read(config: str, fits: bool) -> None:
    load = "model = A.from_pretrained('o/m-8B', quantization_config=bnb, dtype=torch.float16)\n"
    assert bool(why(f"{HUB}bnb = {config}\n", load, ADAPTER)) != fits


def test_transformers_loads_in_16_or_32_bits_where_no_type_is_given() -> None:
    note = why(HUB, "model = A.from_pretrained('o/m-4B')\n", ADAPTER)
    assert "16 bits: about 9 GiB" in note
    assert "32 bits: about 17 GiB" in note
    for dtype in ("torch.bfloat16", "'auto'", "torch.bfloat16 if supported() else torch.float16"):
        assert not why(
            f"{HUB}dtype = {dtype}\n", "model = A.from_pretrained('o/m-4B', dtype=dtype)\n", ADAPTER
        )


def test_a_model_made_from_a_configuration_has_its_size() -> None:
    made = "model = A.from_config(AutoConfig.from_pretrained('o/m-8B'))\n"
    assert "8 billion" in why(HUB, made)


def test_a_model_without_adapter_is_trained_whole() -> None:
    load = "model = A.from_pretrained('o/m-2B', dtype=torch.float16)\n"
    train = "from transformers import Trainer\ntrainer = Trainer(model)\ntrainer.train()\n"
    assert "all trained in 16 bits: about 17 GiB" in why(HUB, load, train)
    assert not why(HUB, load, ADAPTER, train)
    reft = "import pyreft\nother = pyreft.get_reft_model(model, config)\n"
    assert not why(HUB, load, reft + train.replace("(model)", "(other)"))  # which may freeze what it gets
    assert not why(HUB, load, train.replace("train()", "predict(data)"))  # it only looks at its results
