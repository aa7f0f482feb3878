"""Seed the random generators, and keep them alike on all ranks."""

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch

from nb2ddp.runtime.run_state import _run


def _seed_all(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules or _installed("numpy"):
        import numpy

        numpy.random.seed(seed)


def _installed(package: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(package) is not None


def _random_state() -> tuple[Any, ...]:
    """Return the states of the generators that notebooks draw from: random, numpy, torch on the CPU."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), numpy.random.get_state() if numpy else None, torch.get_rng_state()


def _set_random_state(state: tuple[Any, ...]) -> None:
    python, numpy_state, torch_state = state
    random.setstate(python)
    torch.set_rng_state(torch_state)
    if numpy_state is not None and (numpy := sys.modules.get("numpy")):
        numpy.random.set_state(numpy_state)


@contextlib.contextmanager
def _without_effects(model: torch.nn.Module, *, dropout: bool) -> Iterator[None]:
    """Compute without gradients, random numbers and running statistics; ``dropout`` leaves other parts training."""
    modes = {part: part.training for part in model.modules()}
    state = _random_state()
    gpu = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    quiet = (torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._BatchNorm)
    for part in modes:
        part.training = dropout and part.training and not isinstance(part, quiet)
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes.items():
            part.training = training
        _set_random_state(state)
        if gpu is not None:
            torch.cuda.set_rng_state(gpu)


@contextlib.contextmanager
def _own_random_numbers() -> Iterator[None]:
    """Let a rank draw its own numbers, for dropout; afterwards all ranks have the same generators again."""
    before = torch.get_rng_state()
    gpu = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    if _run.rank > 0:
        torch.manual_seed(torch.initial_seed() + 1_000_003 * (_run.rank + _run.world_size * _run.steps))
    started = torch.get_rng_state()
    gpu_started = torch.cuda.get_rng_state() if gpu is not None else None
    try:
        yield
    finally:
        drew = not torch.equal(started, torch.get_rng_state())
        torch.set_rng_state(before)
        if drew:
            torch.rand(1)  # alike on every rank: the next call draws other numbers
        if gpu is not None and gpu_started is not None:
            drew = not torch.equal(gpu_started, torch.cuda.get_rng_state())
            torch.cuda.set_rng_state(gpu)
            if drew:
                torch.rand(1, device="cuda")
