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
