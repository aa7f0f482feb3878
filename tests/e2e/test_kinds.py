"""The promise, kind by kind: each notebook of tests/notebooks in one process and converted on two.

Whatever a kind computes, two processes must give the losses, the parameters and the files of one.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nb2ddp import convert
from tests.support import ROOT
from tests.support.runs import STACKS, Run, plain_code, processes_of, run

pytestmark = pytest.mark.launch

RELATIVE = 1e-5
# The folder or file that each notebook saves in the end.
KINDS = {
    "accumulating_loop": "loop_lora",
    "chat_responses": "chat_lora",
    "classification": "my_classifier",
    "continued_pretraining": "cpt_lora",
    "dpo": "dpo_lora",
    "embeddings": "my_embeddings",
    "embeddings_no_duplicates": "my_embeddings",
    "full_finetuning": "full_model",
    "kto": "kto_lora",
    "llm_in_function": "llm_lora",
    "loop_over_rows": "turns_lora",
    "moe": "moe_lora",
    "orpo": "orpo_lora",
    "reward": "reward_model",
    "sft_packing": "packed_lora",
    "sft_then_dpo": "dpo_lora",
    "trainer_dict": "dict_lora",
    "trainer_subclass": "smooth_model",
    "vision": "vision_lora",
}
ON_KAGGLE = ("continued_pretraining", "dpo", "classification", "moe")
# One of each sort for every change; `make test-all` runs the others too.
FIRST = {
    ("classification", "newest"),
    ("dpo", "newest"),
    ("loop_over_rows", "newest"),
}
CASES = [(kind, "newest") for kind in KINDS] + [(kind, "kaggle") for kind in ON_KAGGLE]

# TRL takes the mean of these over batches, or over the tokens of the batches that all ranks have at one time.
ROUGH = {"eval_entropy", "eval_mean_token_accuracy"}


def both(kind: str, stack: str, folder: Path) -> tuple[Run, Run]:
    """The notebook in one process and its script in two, at the same time."""
    if not STACKS[stack].exists():
        pytest.skip(f"the {stack} stack is not installed; `make test` installs it")
    notebook = ROOT / "tests" / "notebooks" / f"{kind}.ipynb"
    conversion = convert(notebook)
    assert conversion.status == "converted", conversion.declined
    script = conversion.files["train_ddp.py"]
    with ThreadPoolExecutor() as pool:
        expected = pool.submit(run, folder / "one", plain_code(notebook), stack=stack, nproc=0)
        done = pool.submit(run, folder / "two", script, stack=stack, nproc=2)
        return expected.result(), done.result()


@pytest.mark.parametrize(
    ("kind", "stack"),
    [
        pytest.param(kind, stack, marks=() if (kind, stack) in FIRST else pytest.mark.thorough)
        for kind, stack in CASES
    ],
)
def test_two_processes_do_what_one_does(kind: str, stack: str, tmp_path: Path) -> None:
    import torch

    expected, done = both(kind, stack, tmp_path)
    assert expected.exit_code == 0, expected.output
    assert done.exit_code == 0, done.output

    losses = expected.losses("single")
    assert len(losses) > 4
    assert losses[0] != pytest.approx(losses[-1], rel=1e-3), "a run that learns nothing shows nothing"
    assert done.losses(0) == pytest.approx(losses, rel=RELATIVE)
    evaluated = [{k: row[k] for k in row.keys() - ROUGH} for row in expected.evaluated("single")]
    assert [{k: row[k] for k in row.keys() - ROUGH} for row in done.evaluated(0)] == [
        pytest.approx(row, rel=RELATIVE) for row in evaluated
    ]

    first, second, single = done.parameters(0), done.parameters(1), expected.parameters("single")
    assert first.keys() == second.keys() == single.keys() != set()
    assert all(torch.equal(first[name], second[name]) for name in first), "the ranks differ"
    one, two = (torch.cat([tensors[n].double().flatten() for n in single]) for tensors in (single, first))
    assert float((two - one).norm() / one.norm()) <= RELATIVE

    assert any(name.startswith(KINDS[kind]) for name in expected.files())
    # a Trainer's checkpoint keeps one state of the random numbers for each rank, by design
    states = {name for name in done.files() | expected.files() if "rng_state" in name}
    assert done.files() - states == expected.files() - states
    by_others = {name for name in done.written(1) if not name.startswith(("hf/", "unsloth_compiled_cache/"))}
    assert by_others <= states
    assert processes_of(done.watch) == []


@pytest.mark.thorough
def test_grpo_takes_the_same_prompts_in_whole_groups(tmp_path: Path) -> None:
    """What is generated differs, as each rank draws its own; the prompts and their counts do not."""
    import torch

    expected, done = both("grpo", "newest", tmp_path)
    assert expected.exit_code == 0, expected.output
    assert done.exit_code == 0, done.output
    tokens = [re.findall(r"'num_tokens': '(\d+)'", ended.output) for ended in (expected, done)]
    assert tokens[0] == tokens[1]
    assert len(set(tokens[0])) == 6
    assert "batch 4 x 1 accumulation steps x 2 processes = 8 per step" in done.output
    first, second = done.parameters(0), done.parameters(1)
    assert all(torch.equal(first[name], second[name]) for name in first), "the ranks differ"
    assert any(value.abs().max() > 0 for name, value in first.items() if "lora_B" in name), (
        "it learnt nothing"
    )
    assert done.files() == expected.files() >= {"grpo_lora/adapter_model.safetensors"}
    assert not any(name.startswith("grpo_lora") for name in done.written(1))
    assert processes_of(done.watch) == []
