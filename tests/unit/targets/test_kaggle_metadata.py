"""The Kaggle bundle's metadata, and what it reads from a script: names, inputs and tokens."""

from __future__ import annotations

from typing import Any

import pytest

from nb2ddp.errors import BundleError, OptionError
from nb2ddp.targets.kaggle import (
    ACCELERATORS,
    METADATA_FILE,
    InputSources,
    accelerator_of,
    input_sources,
    kernel_title,
    slugify,
    tokens_read,
)
from tests.support.kaggle_kernel import bundle, code, metadata

# ---------------------------------------------------------------------------------------------------------
# Metadata


def test_the_metadata_asks_for_two_t4_and_stays_private() -> None:
    assert metadata() == {
        "id": "ada/tiny-run",
        "title": "Tiny run",
        "code_file": "tiny-run.py",
        "language": "python",
        "kernel_type": "script",
        "is_private": True,
        "enable_gpu": True,
        "enable_tpu": False,
        "enable_internet": True,
        "machine_shape": "NvidiaTeslaT4",
        "dataset_sources": [],
        "competition_sources": [],
        "kernel_sources": [],
        "model_sources": [],
    }


def test_the_code_file_is_the_one_that_the_metadata_names() -> None:
    assert set(bundle(title="Größe 12")) == {METADATA_FILE, "grosse-12.py"}
    assert metadata(title="Größe 12")["code_file"] == "grosse-12.py"


def test_an_unknown_owner_is_left_to_be_filled_in() -> None:
    assert metadata(owner=None)["id"] == "INSERT_OWNER_SLUG_HERE/tiny-run"


def test_sources_are_listed_once_each_in_the_given_order() -> None:
    found = metadata(
        dataset_sources=["bob/b-set", "ada/a_set/3", "bob/b-set"],
        competition_sources=("titanic",),
        kernel_sources=["ada/first-run"],
        model_sources=["google/gemma/pyTorch/1.1-2b-it/1"],
        enable_internet=False,
    )
    assert found["dataset_sources"] == ["bob/b-set", "ada/a_set/3"]
    assert found["competition_sources"] == ["titanic"]
    assert found["kernel_sources"] == ["ada/first-run"]
    assert found["model_sources"] == ["google/gemma/pyTorch/1.1-2b-it/1"]
    assert found["enable_internet"] is False


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"owner": "ada lovelace"}, "'ada lovelace' is no name of a Kaggle user"),
        ({"owner": ""}, "'' is no name of a Kaggle user"),
        ({"dataset_sources": ["alpaca"]}, "'alpaca' .* look like owner/slug"),
        ({"dataset_sources": ["ada/alpaca\n"]}, "Kaggle's datasets"),
        ({"competition_sources": ["c/titanic"]}, "'c/titanic' .* look like slug"),
        ({"kernel_sources": ["ada/run"]}, "'ada/run' .* look like owner/slug"),
        ({"model_sources": ["google/gemma/pyTorch/2b"]}, "look like owner/model/framework/variation/version"),
        ({"nproc": 3}, "has 2 GPUs, so it cannot run 3 processes"),
    ],
)
def test_what_kaggle_would_refuse_is_refused_in_a_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError if "owner" in changes else BundleError, match=words):
        bundle(**changes)


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Fine-tuning Llama", "Fine-tuning Llama"),
        ("Gemma3_(4B).ipynb", "Gemma3 4B ipynb"),
        ("Crème brûlée à la façon de Zoë", "Creme brulee a la facon de Zoe"),
        ("qa", "qa ddp"),
        ("x", "x ddp"),
        ("4-bit Llama", "Notebook 4-bit Llama"),
        ("日本語", "Notebook"),
        ("", "Notebook"),
        ("--- a --- b --- c", "a b c"),
        (
            "Supervised fine-tuning of a small language model on two GPUs",
            "Supervised fine-tuning of a small language model",
        ),
        ("x" * 60, "x" * 50),
        ("on " + "x" * 60, "on " + "x" * 47),
    ],
)
def test_titles(title: str, expected: str) -> None:
    assert kernel_title(title) == expected
    assert kernel_title(expected) == expected


@pytest.mark.parametrize(
    "title", ["Ünïcødé", "7", "a" * 49 + " b", "a" * 49 + "-b", "A.B.C", "x_y" * 30, "ab\ncd"]
)
def test_slugs_are_what_kaggle_takes(title: str) -> None:
    slug = slugify(title)
    assert slug.isascii()
    assert slug == slug.lower()
    assert slug[0].isalpha()
    assert slug[-1].isalnum()
    assert slug.replace("-", "").isalnum()
    assert 5 <= len(slug) <= 50


# ---------------------------------------------------------------------------------------------------------
# Inputs


def test_inputs_with_an_owner_are_known() -> None:
    text = """
    a = load("/kaggle/input/datasets/ada/alpaca/train.csv") + load('/kaggle/input/datasets/ada/alpaca')
    b = "../input/competitions/titanic/train.csv"
    c = "/kaggle/input/notebooks/bob/first-run/lora_model"
    d = Path("/kaggle/input/models/google/gemma/transformers/1.1-2b-it/2/config.json")
    # from /kaggle/input/datasets/bob/words.
    """
    assert input_sources(text) == InputSources(
        {
            "dataset_sources": ("ada/alpaca", "bob/words"),
            "competition_sources": ("titanic",),
            "kernel_sources": ("bob/first-run",),
            "model_sources": ("google/gemma/transformers/1.1-2b-it/2",),
        }
    )


def test_inputs_without_an_owner_are_given_back_by_name() -> None:
    text = """
    open("/kaggle/input/alpaca/train.csv"), open("../input/alpaca/test.csv"), open("../input/words/w.txt")
    open("/kaggle/input/datasets/ada"), open("/kaggle/input/models/all.pt")
    open("/kaggle/input/notebooks/ada/run")
    open(f"/kaggle/input/datasets/ada/part-{n}/x"), open(f"/kaggle/input/datasets/ada/part{n}")
    """
    assert input_sources(text) == InputSources(
        unresolved=(
            "alpaca",
            "words",
            "datasets/ada",
            "models/all.pt",
            "notebooks/ada/run",
            "datasets/ada/part-",
            "datasets/ada/part",
        )
    )


@pytest.mark.parametrize(
    "text",
    [
        'os.walk("/kaggle/input")',
        'glob("/kaggle/input/*")',
        'f"/kaggle/input/{name}"',
        'f"/kaggle/input/set-{n}"',
        '"/kaggle/input/datasets"',
        '"../../input/words"',
        '"/data/input/words"',
    ],
)
def test_paths_that_name_no_input(text: str) -> None:
    assert input_sources(text) == InputSources()


# ---------------------------------------------------------------------------------------------------------
# Tokens


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("login(os.environ['HF_TOKEN'])", {"HF_TOKEN": "required"}),
        ("login(environ['HF_TOKEN'])", {"HF_TOKEN": "required"}),
        ("key = os.environ.get('WANDB_API_KEY')", {"WANDB_API_KEY": "optional"}),
        ("key = os.getenv('WANDB_API_KEY', '')", {"WANDB_API_KEY": "optional"}),
        ("os.environ['HF_TOKEN'] = UserSecretsClient().get_secret('HF_TOKEN')", {"HF_TOKEN": "secret"}),
        ("hf = UserSecretsClient().get_secret('hf')", {"hf": "secret"}),
        (
            "try:\n    t = secrets.get_secret('HF_TOKEN')\nexcept Exception:\n    t = None",
            {"HF_TOKEN": "optional"},
        ),
        ("if push:\n    login(os.environ['HF_TOKEN'])", {"HF_TOKEN": "optional"}),
        ("push and login(os.environ['HF_TOKEN'])", {"HF_TOKEN": "optional"}),
        ("os.environ['HF_TOKEN'] = read()\nlogin(os.environ['HF_TOKEN'])", {"HF_TOKEN": "optional"}),
        (
            "a = os.environ['HF_TOKEN'], os.environ['RANK'], os.environ['TOKENIZERS_PARALLELISM']",
            {"HF_TOKEN": "required"},
        ),
        ("config.get('API_KEY'), config['API_KEY'], os.environ[name]", {}),
        ("not Python", {}),
    ],
)
def test_tokens_that_a_script_reads(script: str, expected: dict[str, str]) -> None:
    assert tokens_read(script) == expected


@pytest.mark.parametrize(
    ("name", "shape", "processes"), [("t4x2", "NvidiaTeslaT4", 2), ("l4x4", "NvidiaL4", 4)]
)
def test_an_accelerator_has_a_process_for_each_gpu(name: str, shape: str, processes: int) -> None:
    assert metadata(accelerator=name)["machine_shape"] == shape
    assert f"\nNPROC = {processes}\n" in code(accelerator=name)
    assert ACCELERATORS[name].label in code(accelerator=name)
    assert accelerator_of(shape) == accelerator_of(name.upper()) == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("p100", "a P100 is one GPU"),
        ("NvidiaTeslaP100", "a P100 is one GPU"),
        ("tpu-v3-8", "a TPU is no GPU"),
        ("t4", "Kaggle lends T4s in pairs"),
        ("t4x1", "Kaggle lends T4s in pairs"),
        ("none", "nothing to divide"),
        ("h100", "it is not known here"),
    ],
)
def test_an_accelerator_that_cannot_be_used_is_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(BundleError, match=why) as error:
        accelerator_of(name)
    assert "Choose t4x2 (GPU T4 x2) or l4x4 (GPU L4 x4)." in str(error.value)
