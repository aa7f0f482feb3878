"""Whether a copy of the model fits on each GPU."""

from __future__ import annotations

import pytest

from nb2ddp.options import Options
from nb2ddp.rules.memory import parameters, rule
from tests.support.helpers import apply

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
    assert parameters(name) == billions


@pytest.mark.parametrize(
    ("load", "fits"),
    [
        ("F.from_pretrained('o/m-8B')", True),  # Unsloth loads in 4 bits unless told otherwise
        ("F.from_pretrained('o/m-8B', load_in_4bit=False)", False),
        ("F.from_pretrained('o/m-8B-bnb-4bit', load_in_4bit=False)", True),
        ("F.from_pretrained('o/m-32B', load_in_4bit=True)", False),
        ("F.from_pretrained('o/m-12B', load_in_8bit=True)", False),
        ("F.from_pretrained('o/m-1B', full_finetuning=True)", True),
        ("F.from_pretrained('o/m-4B', full_finetuning=True)", False),
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
