"""GPU 0 by number is this rank's GPU, and a mask on one GPU holds outside torchrun only."""

from __future__ import annotations

import pytest

from nb2ddp.rules.device_literals import rule
from tests.support.helpers import apply, check_settles, check_untouched

LEFT_ALONE = {
    "cuda": 'batch = batch.to("cuda")',
    "no number": "model.cuda()",
    "a text about the GPU": 'print("running on cuda:0 now")',
    "a docstring": 'def f():\n    "cuda:0"\n    return 1',
    "an escape that Python does not know": r'pattern = "\d" "\w"',
    "seeds": "import torch\ntorch.cuda.manual_seed(0)\ntorch.cuda.manual_seed_all(0)\ntorch.manual_seed(0)",
    "no device": "x = torch.zeros(0)\nrange(0)\nx.sum(0)",
    "a count": "import torch\nn = torch.cuda.device_count()",
    "reading the mask": 'import os\nv = os.environ.get("CUDA_VISIBLE_DEVICES")\nprint(v)',
    "asking for the mask": 'import os\nif "CUDA_VISIBLE_DEVICES" in os.environ:\n    pass',
    "the environment of another process": 'env = {"CUDA_VISIBLE_DEVICES": "0"}\nrun("serve", env=env)',
    "a mask in a shell line": "!CUDA_VISIBLE_DEVICES=0 python other.py",
    "showing the mask": "%env CUDA_VISIBLE_DEVICES",
}

GPU_0 = {
    "cuda:0": ('x = x.to("cuda:0")', 'x = x.to(f"cuda:{local_rank}")'),
    "single quotes": ("x = x.to('cuda:0')", "x = x.to(f'cuda:{local_rank}')"),
    "inside an f-string": ("print(f\"{x.to('cuda:0')}\")", "print(f\"{x.to(f'cuda:{local_rank}')}\")"),
    "by keyword": ('x.to(device = "cuda:0")', 'x.to(device = f"cuda:{local_rank}")'),
    "a choice": (
        'device = "cuda:0" if torch.cuda.is_available() else "cpu"',
        'device = f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu"',
    ),
    "a device map": (
        'AutoModel.from_pretrained("m", device_map={"": "cuda:0"})',
        'AutoModel.from_pretrained("m", device_map={"": f"cuda:{local_rank}"})',
    ),
    "a number": ("model.cuda(0)", "model.cuda(local_rank)"),
    "to a number": ("x.to(0)", "x.to(local_rank)"),
    "a pipeline": (
        'pipe = pipeline("text-generation", device=0)',
        'pipe = pipeline("text-generation", device=local_rank)',
    ),
}

# after "import torch"
CHOICES = {
    "an argument": (
        "pipeline(device=0 if torch.cuda.is_available() else -1)",
        "pipeline(device=local_rank if torch.cuda.is_available() else -1)",
    ),
    "a variable": (
        'device = 0 if torch.cuda.is_available() else "cpu"',
        'device = local_rank if torch.cuda.is_available() else "cpu"',
    ),
    "a number that is no GPU": ("workers = 0 if torch.cuda.is_available() else 2", None),
    "the CPU": ("gpus = 0 if not torch.cuda.is_available() else -1", None),
}

TORCH = {
    "properties": ("torch.cuda.get_device_properties(0)", "torch.cuda.get_device_properties(local_rank)"),
    "set_device": ("torch.cuda.set_device(0)", "torch.cuda.set_device(local_rank)"),
    "memory": ("torch.cuda.mem_get_info(device=0)", "torch.cuda.mem_get_info(device=local_rank)"),
    "a fraction": (
        "torch.cuda.set_per_process_memory_fraction(0.5, 0)",
        "torch.cuda.set_per_process_memory_fraction(0.5, local_rank)",
    ),
    "a block": (
        "with torch.cuda.device(0):\n    pass",
        "with torch.cuda.device(local_rank):\n    pass",
    ),
    "a device of its parts": ('torch.device("cuda", 0)', 'torch.device("cuda", local_rank)'),
    "a device of its number": ("torch.device(0)", "torch.device(local_rank)"),
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE.keys())
def test_what_names_no_gpu_is_left_alone(source: str) -> None:
    check_untouched(rule, source)


@pytest.mark.parametrize(("before", "after"), GPU_0.values(), ids=GPU_0.keys())
def test_gpu_0_is_this_ranks_gpu(before: str, after: str) -> None:
    check_settles(rule, before, after)


@pytest.mark.parametrize(("before", "after"), CHOICES.values(), ids=CHOICES.keys())
def test_a_choice_of_gpu_0_is_this_ranks_gpu(before: str, after: str | None) -> None:
    if after is None:
        check_untouched(rule, f"import torch\n{before}")
    else:
        check_settles(rule, f"import torch\n{before}", f"import torch\n{after}")


@pytest.mark.parametrize(("before", "after"), TORCH.values(), ids=TORCH.keys())
@pytest.mark.parametrize("name", ["torch", "th"])
def test_torch_is_asked_about_this_ranks_gpu(name: str, before: str, after: str) -> None:
    header = "import torch\n" if name == "torch" else "import torch as th\n"
    check_settles(rule, header + before.replace("torch", name), header + after.replace("torch", name))


def test_a_function_of_torch_cuda_is_known_by_its_import() -> None:
    check_settles(
        rule,
        "from torch.cuda import get_device_properties as props\nprops(0).total_memory",
        "from torch.cuda import get_device_properties as props\nprops(local_rank).total_memory",
    )


def test_another_gpu_is_noted_and_kept() -> None:
    result = check_untouched(rule, 'judge = judge.to("cuda:1")')
    [note] = result.notes
    assert '"cuda:1" names a GPU of another rank' in note.why


def test_names_of_the_notebook_are_not_taken() -> None:
    result = apply(rule, 'local_rank = 3\nx.to("cuda:0")\nx.cuda(0)')
    assert result.code[1] == 'local_rank = 3\nx.to(f"cuda:{ddp_local_rank}")\nx.cuda(ddp_local_rank)'
