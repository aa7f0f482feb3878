"""Where training arguments are made, and which parts of the batch they set."""

from __future__ import annotations

import pytest

from nb2ddp.analysis import training_arguments
from nb2ddp.analysis.training_arguments import ACCUMULATION, BATCH, GENERATIONS
from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of

START = "import dataclasses, functools\nfrom trl import GRPOConfig, KTOConfig, SFTConfig\n"


@pytest.mark.parametrize(
    ("code", "made", "parts"),
    [
        (
            f"SFTConfig({BATCH}=2, {GENERATIONS}=4, seed=1)",
            f"SFTConfig({BATCH}=2, {GENERATIONS}=4, seed=1)",
            {BATCH: "2", GENERATIONS: "4"},
        ),
        (
            "SFTConfig(per_gpu_train_batch_size=1, per_gpu_eval_batch_size=2)",  # Transformers' older names
            "SFTConfig(per_gpu_train_batch_size=1, per_gpu_eval_batch_size=2)",
            {BATCH: "1"},
        ),
        ("class Mine(SFTConfig): pass\nMine()", "Mine()", {}),
        (
            f"functools.partial(SFTConfig, {ACCUMULATION}=n)",
            f"functools.partial(SFTConfig, {ACCUMULATION}=n)",
            {ACCUMULATION: "n"},
        ),
        (f"given = {{'{BATCH}': 2}}\nSFTConfig(**given)", f"{{'{BATCH}': 2}}", {BATCH: "2"}),
        (
            f"given = {{'{BATCH}': 2}}\nSFTConfig(**given, {ACCUMULATION}=4)",
            f"SFTConfig(**given, {ACCUMULATION}=4)",
            None,  # partly here and partly there
        ),
        ("SFTConfig(**load())", "SFTConfig(**load())", None),
    ],
)
def test_what_arguments_set(code: str, made: str, parts: dict[str, str] | None) -> None:
    ((node, given),) = training_arguments.recipes(facts_of(START, code))
    assert cst_nodes.code_of(node) == made
    found = None if given is None else {key: cst_nodes.code_of(value) for key, value in given.items()}
    assert found == parts


def test_a_dict_of_two_calls_is_one_recipe() -> None:
    facts = facts_of(START, f"given = {{'{BATCH}': 2}}\nSFTConfig(**given)\nSFTConfig(**given, seed=1)")
    assert len(list(training_arguments.recipes(facts))) == 1


def test_what_makes_no_arguments() -> None:
    facts = facts_of(START, f"if False:\n    SFTConfig()\nload({BATCH}=2)\nfunctools.partial(load)")
    assert not list(training_arguments.recipes(facts))


@pytest.mark.parametrize(
    ("code", "groups"),
    [
        ("GRPOConfig()", True),
        ("GRPOConfig(num_generations=4)", True),
        ("SFTConfig(**{'num_generations': n})", True),
        ("SFTConfig()", False),
    ],
)
def test_completions_of_one_prompt_stay_together(code: str, groups: bool) -> None:
    facts = facts_of(START, code)
    ((node, given),) = training_arguments.recipes(facts)
    assert given is not None
    assert training_arguments.generates(facts, node, given) == groups


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("GRPOConfig()", True),
        ("from trl import RLOOTrainer\nRLOOTrainer(m)", True),
        ("SFTConfig()", False),
        ("KTOConfig()", False),
    ],
)
def test_whether_libraries_know_the_ranks(code: str, expected: bool) -> None:
    facts = facts_of(START, code)
    assert training_arguments.libraries_know_ranks(facts, "ddp") == expected
    assert training_arguments.libraries_know_ranks(facts, "fsdp")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"it = dataclasses.replace(args, {BATCH}=4)", True),
        (f"setattr(args, '{ACCUMULATION}', 4)", True),
        (f"make = functools.partial(SFTConfig)\nit = make({BATCH}=4)", True),
        ("it = dataclasses.replace(args, seed=4)", False),
        ("setattr(args, name, 4)", False),
        (f"it = load({BATCH}=4)", False),
    ],
)
def test_whether_a_call_sets_the_batch_later(code: str, expected: bool) -> None:
    facts = facts_of(START, code)
    assert training_arguments.sets_later(facts, facts.calls[-1]) == expected
