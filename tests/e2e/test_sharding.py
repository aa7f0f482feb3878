"""`--strategy fsdp`, measured on the CPU: the 16-bit sample with Unsloth's own FSDP2 on two gloo ranks.

On a CPU each block is sharded, as on GPUs that are too small for the model; 4-bit weights need a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from nb2ddp import convert
from tests.support import ROOT
from tests.support.runs import Run, alone, plain_code, run

pytestmark = pytest.mark.launch

SAMPLE = ROOT / "sample_notebooks" / "alpaca_sft.ipynb"
NOTEBOOKS = ROOT / "tests" / "notebooks"
ADAPTERS = {
    "alpaca_sft": "llama_lora",
    "chat_responses": "chat_lora",
    "sft_packing": "packed_lora",
    "continued_pretraining": "cpt_lora",
}
Runner = Callable[..., Run]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Run a notebook (-1), or its script in plain Python (0) or on some ranks; each once."""
    folder = tmp_path_factory.mktemp("sharding")
    made: dict[tuple[Path, int, bool], Run] = {}

    def get(nproc: int, notebook: Path = SAMPLE, *, torchrun: bool = False) -> Run:
        if nproc < 0 and notebook == SAMPLE:
            return alone(SAMPLE.stem, "newest")
        key = (notebook, nproc, torchrun)
        if key not in made:
            code = plain_code(notebook) if nproc < 0 else script(notebook)
            code = code if nproc < 0 or torchrun else forked(code)
            place = folder / f"run-{len(made)}"
            made[key] = run(place, code, stack="newest", nproc=max(nproc, 0), torchrun=torchrun)
            assert made[key].exit_code == 0, made[key].output
        return made[key]

    return get


def script(notebook: Path) -> str:
    return convert(notebook, strategy="fsdp").files["train_ddp.py"]


def forked(text: str) -> str:
    """Do again what `import unsloth` does when it sees the ranks: the server has imported it without them.

    Nothing is compiled: that would take most of the time.
    """
    head, first, rest = text.partition("from unsloth import FastLanguageModel\n")
    again = """import torch._dynamo
torch._dynamo.config.disable = True
from unsloth import fsdp2_launch
fsdp2_launch.install_native_fsdp2_trainer_init()
"""
    return head + first + again + rest


def adapter(done: Run, folder: str = ADAPTERS["alpaca_sft"]) -> Mapping[str, Any]:
    from safetensors.torch import load_file

    loaded: Mapping[str, Any] = load_file(done.folder / folder / "adapter_model.safetensors")
    return loaded


def check_alike(expected: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    assert saved.keys() == expected.keys()
    for name, value in expected.items():
        assert saved[name].shape == value.shape
        assert saved[name].dtype == value.dtype
    length = sum(float(value.double().pow(2).sum()) for value in expected.values()) ** 0.5
    apart = sum(float((saved[n] - v).double().pow(2).sum()) for n, v in expected.items()) ** 0.5
    assert apart <= 1e-5 * length


def test_losses_are_the_single_runs(runner: Runner) -> None:
    expected, losses = runner(-1).losses("single"), runner(2).losses(0)
    assert "native FSDP2 sharded 2 blocks (LlamaDecoderLayer) + root, over 2 ranks" in runner(2).output
    assert len(losses) == len(expected) == 10
    assert losses == pytest.approx(expected, rel=1e-5)
    assert expected[0] != pytest.approx(expected[-1], rel=1e-2), "a run that learns nothing shows nothing"
    assert "nb2ddp: 2 ranks hold one model in shards" in runner(2).output


def test_the_adapter_is_the_single_runs(runner: Runner) -> None:
    check_alike(adapter(runner(-1)), adapter(runner(2)))
    names = [ended.folder / "llama_lora" / "adapter_config.json" for ended in (runner(-1), runner(2))]
    assert json.loads(names[0].read_text()) == json.loads(names[1].read_text())


def test_the_same_files_are_written_by_rank_0_alone(runner: Runner) -> None:
    single, ranks = runner(-1).files(), runner(2).files()
    # each rank's random state is a file of its own
    assert {p for p in ranks if "rng_state" not in p} == {p for p in single if "rng_state" not in p}
    assert {p for p in runner(2).written(1) if not p.startswith("hf/") and "rng_state" not in p} == set()


@pytest.mark.thorough
def test_under_plain_python_it_is_the_notebook(runner: Runner) -> None:
    assert runner(0).losses("single") == runner(-1).losses("single")
    assert runner(0).files() == runner(-1).files()


@pytest.mark.thorough
def test_as_users_launch_it(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")  # compiling takes a minute
    launched = runner(2, torchrun=True)
    assert launched.losses(0) == pytest.approx(runner(-1).losses("single"), rel=1e-5)
    check_alike(adapter(runner(-1)), adapter(launched))


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(ADAPTERS.keys() - {"alpaca_sft"}))
def test_other_ways_to_fine_tune(runner: Runner, name: str) -> None:
    notebook = NOTEBOOKS / f"{name}.ipynb"
    single, sharded = runner(-1, notebook), runner(2, notebook)
    assert "native FSDP2 sharded" in sharded.output
    assert sharded.losses(0) == pytest.approx(single.losses("single"), rel=1e-5)
    check_alike(adapter(single, ADAPTERS[name]), adapter(sharded, ADAPTERS[name]))


@pytest.mark.thorough
def test_a_run_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    """The adapter and the optimizer's moments are read into each rank's shards, and the data goes on where it was."""
    saving = script(SAMPLE).replace("max_steps = 10,", "max_steps = 10, save_steps = 5,")
    whole = run(tmp_path / "whole", forked(saving), stack="newest", nproc=2)
    assert whole.exit_code == 0, whole.output
    checkpoint = tmp_path / "whole" / "outputs" / "checkpoint-5"
    resuming = saving.replace(
        "trainer.train()", f"trainer.train(resume_from_checkpoint = {str(checkpoint)!r})"
    )
    assert resuming != saving
    resumed = run(tmp_path / "resumed", forked(resuming), stack="newest", nproc=2)
    assert resumed.exit_code == 0, resumed.output
    assert resumed.losses(0) == pytest.approx(whole.losses(0)[5:], rel=1e-5)
    check_alike(adapter(whole), adapter(resumed))
    assert "outputs/checkpoint-10/optimizer.pt" in resumed.files()
