"""Seed the random generators, and keep them alike on all ranks."""

import random
import sys
from typing import Any

import torch


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


def _every_random_state() -> tuple[Any, ...]:
    """Return the states of all generators: those of `_random_state`, and this rank's GPU's."""
    state = random.getstate()
    numpy = sys.modules.get("numpy")
    numbers = numpy.random.get_state() if numpy else None
    of_numpy = None if numbers is None else (numbers[0], numbers[1].tobytes(), *numbers[2:])
    gpu = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
    return state, of_numpy, torch.get_rng_state(), gpu


def _set_every_random_state(state: tuple[Any, ...]) -> None:
    python, of_numpy, torch_state, gpu = state
    random.setstate(python)
    torch.set_rng_state(torch_state)
    if of_numpy is not None:
        numpy = sys.modules["numpy"]
        keys = numpy.frombuffer(of_numpy[1], dtype=numpy.uint32)
        numpy.random.set_state((of_numpy[0], keys, *of_numpy[2:]))
    if gpu is not None:
        torch.cuda.set_rng_state(gpu)


def _seed_for(state: tuple[Any, ...], number: int) -> None:
    """Seed all generators by a state and a number: alike on every rank, and different for other numbers."""
    gpu = 0 if state[3] is None else int(state[3].view(torch.int64).sum())
    own = int(state[2].view(torch.int64).sum()) + gpu
    _seed_all((own * 1_000_003 + number * 7919) % 2**31)
