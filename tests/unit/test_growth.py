"""Conversion time grows at most like n log n: in statements, cells, functions, calls and trainings."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.support.helpers import converted

SMALL, FACTOR = 60, 4
BOUND = FACTOR * 1.8  # n log n gives 4.5 to 5.4 here, n^2 16
TRIES = 8  # the bound holds for the best of them: other processes can only add time

LOAD = """
from unsloth import FastLanguageModel
from trl import SFTTrainer, SFTConfig
from datasets import load_dataset
from torch.utils.data import DataLoader
model, tokenizer = FastLanguageModel.from_pretrained("m")
ds = load_dataset("d", split="train")
"""
TRAIN = """
trainer = SFTTrainer(model=model, train_dataset=ds, args=SFTConfig(per_device_train_batch_size=4))
trainer.train()
"""
LOOP = """
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters())
"""
ONE_LOOP = """
loader{i} = DataLoader(rows, batch_size=4)
for batch in loader{i}:
    loss = model(batch).sum()
    loss.backward()
    optimizer.step()
"""
ONE_GENERATION = """
answers{i} = []
for question in questions:
    answers{i}.append(model.generate(question))
"""


def lines(template: str) -> Callable[[int], list[str]]:
    """Return a family of notebooks: ``template`` n times in one cell, before training."""
    return lambda n: [LOAD, "\n".join(template.format(i=i, j=i + 1) for i in range(n)), TRAIN]


def cells(template: str) -> Callable[[int], list[str]]:
    """Return a family of notebooks: ``template`` in n cells, before training."""
    return lambda n: [LOAD, *(template.format(i=i, j=i + 1) for i in range(n)), TRAIN]


FAMILIES: dict[str, Callable[[int], list[str]]] = {
    "a dataset mapped again and again": lines("ds = ds.map(f)"),
    "a dataset mapped in many cells": cells("ds = ds.map(f)"),
    "a name bound to itself": lines("x = x + 1"),
    "functions in a chain": lines("def f{i}(x):\n    return f{j}(x)"),
    "functions in a circle": lambda n: [
        LOAD,
        "\n".join(f"def f{i}(x):\n    return f{(i + 1) % n}(x) + f{(i + 7) % n}(x)" for i in range(n)),
        "\n".join(f"ds = ds.map(f{i})" for i in range(n)),
        TRAIN,
    ],
    "methods that pass on their parameter": lambda n: [
        LOAD,
        "class Table:\n    def to(self, device='cpu'):\n"
        + "\n".join(f"        self.x{i} = self.x{i}.to(device)" for i in range(n)),
        "table = Table().to(device='cuda')",
        TRAIN,
    ],
    "nested functions": lambda n: [
        LOAD,
        "def outer():\n" + "\n".join(f"    def f{i}(x):\n        return f{i}(x)" for i in range(n)),
        TRAIN,
    ],
    "trainings": lambda n: [LOAD, TRAIN, *["trainer.train()"] * n],
    "trainers": lambda n: [LOAD, *[TRAIN] * n],
    "arguments": lines("arguments{i} = SFTConfig(seed={i})"),
    "saves": lambda n: [LOAD, TRAIN, "\n".join(f"model.save_pretrained('m{i}')" for i in range(n))],
    "saves before training": lines("model.save_pretrained('m{i}')"),
    "loaders": lines("loader{i} = DataLoader(ds, batch_size=4)"),
    "hand-written loops": lambda n: [LOOP, *(ONE_LOOP.format(i=i) for i in range(n))],
    "generations": lines("answer{i} = model.generate(question)"),
    "generating loops": cells(ONE_GENERATION),
    "imports": lines("from package import name{i}"),
    "f-strings": lines("print(f'{{x}} of {i}')"),
    "one name given again and again below tests": lambda n: [
        "import os\nrank = int(os.environ['RANK'])\na = b = c = 0" + LOOP,
        ONE_LOOP.format(i=0)
        + "".join(
            f"    if a > {i} and b != rank:\n        a = b + c\n    else:\n        c = {i}\n"
            for i in range(n)
        )
        + "    if b > 3:\n        continue\n",
    ],
    "runs of a tracker": lambda n: [
        "from aim import Run" + LOOP,
        *(
            f"run{i} = Run()\nrun{i}['a'] = {i}\nlog{i} = run{i}.logger()\nlog{i}.track({i})"
            for i in range(n)
        ),
        ONE_LOOP.format(i=0),
    ],
    "runs of a tracker in a chain": lambda n: [
        "from aim import Run\nrun0 = Run()" + LOOP,
        *(f"run{i + 1} = run{i}.child()" for i in range(n)),
        ONE_LOOP.format(i=0),
    ],
    "shell lines below other code": lines("x{i} = {i}\n!echo {i}"),
    "installs": cells("!pip install package{i}"),
    "installs with a variable": cells("version{i} = '1'\n!pip install package=={{version{i}}}"),
}
# those whose pieces meet one another, each in its own way
QUICK = (
    "functions in a circle",
    "saves before training",
    "hand-written loops",
    "generations",
    "installs",
    "methods that pass on their parameter",
)


def seconds(notebook: list[str]) -> float:
    """Return the CPU time of one conversion, which must succeed."""
    start = time.process_time()
    assert converted(*notebook).status == "converted"
    return time.process_time() - start


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=() if name in QUICK else pytest.mark.thorough) for name in FAMILIES]
)
def test_conversion_time_grows_like_n_log_n(family: str) -> None:
    make = FAMILIES[family]
    small = large = float("inf")
    for _ in range(TRIES):
        small = min(small, seconds(make(SMALL)))
        large = min(large, seconds(make(SMALL * FACTOR)))
        if large <= BOUND * small:
            break
    assert large <= BOUND * small, f"{small:.2f} s for {SMALL}, {large:.2f} s for {SMALL * FACTOR}"
