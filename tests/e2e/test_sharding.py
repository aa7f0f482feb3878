"""`--strategy fsdp`, measured on the CPU: the 16-bit sample with Unsloth's own FSDP2 on two gloo ranks.

On a CPU each block is sharded, as on GPUs that are too small for the model; 4-bit weights need a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from nb2ddp import convert
from tests.support import ROOT
from tests.support.runs import Run, plain_code, run

pytestmark = pytest.mark.launch

SAMPLE = ROOT / "sample_notebooks" / "alpaca_sft.ipynb"
Runner = Callable[[int], Run]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Run the notebook (-1), or its script in plain Python (0) or on some ranks; each once."""
    folder = tmp_path_factory.mktemp("sharding")
    made: dict[int, Run] = {}

    def get(nproc: int) -> Run:
        if nproc not in made:
            code = plain_code(SAMPLE) if nproc < 0 else forked(script())
            made[nproc] = run(folder / f"run-{nproc}", code, stack="newest", nproc=max(nproc, 0))
            assert made[nproc].exit_code == 0, made[nproc].output
        return made[nproc]

    return get


def script() -> str:
    return convert(SAMPLE, strategy="fsdp").files["train_ddp.py"]


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


def adapter(done: Run) -> Mapping[str, Any]:
    from safetensors.torch import load_file

    loaded: Mapping[str, Any] = load_file(done.folder / "llama_lora" / "adapter_model.safetensors")
    return loaded


def test_losses_are_the_single_runs(runner: Runner) -> None:
    expected, losses = runner(-1).losses("single"), runner(2).losses(0)
    assert "native FSDP2 sharded 2 blocks (LlamaDecoderLayer) + root, over 2 ranks" in runner(2).output
    assert len(losses) == len(expected) == 10
    assert losses == pytest.approx(expected, rel=1e-5)
    assert expected[0] != pytest.approx(expected[-1], rel=1e-2), "a run that learns nothing shows nothing"
    assert "2 replicas equal, bit for bit" in runner(2).output


def test_the_adapter_is_the_single_runs(runner: Runner) -> None:
    expected, saved = adapter(runner(-1)), adapter(runner(2))
    assert saved.keys() == expected.keys()
    for name, value in expected.items():
        assert saved[name].shape == value.shape
        assert saved[name].dtype == value.dtype
    moved = sum(float(value.double().pow(2).sum()) for value in expected.values()) ** 0.5
    apart = sum(float((saved[n] - v).double().pow(2).sum()) for n, v in expected.items()) ** 0.5
    assert apart <= 1e-6 * moved
    settings = [
        json.loads((r.folder / "llama_lora" / "adapter_config.json").read_text())
        for r in map(runner, (-1, 2))
    ]
    assert settings[0] == settings[1]


def test_the_same_files_are_written_by_rank_0_alone(runner: Runner) -> None:
    single, ranks = runner(-1).files(), runner(2).files()
    # each rank's random state is a file of its own
    assert {p for p in ranks if "rng_state" not in p} == {p for p in single if "rng_state" not in p}
    assert {p for p in runner(2).written(1) if not p.startswith("hf/") and "rng_state" not in p} == set()


def test_under_plain_python_it_is_the_notebook(runner: Runner) -> None:
    assert runner(0).losses("single") == runner(-1).losses("single")
    assert runner(0).files() == runner(-1).files()
