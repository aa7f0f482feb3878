"""Seed the random generators, and keep them alike on all ranks."""

import multiprocessing
import random
import sys
import tempfile
import threading
from typing import Any

import torch

_entropy = [random.SystemRandom().getrandbits(128), 0]  # the system's, and how often it was asked for
_of_threads: dict[str, list[int]] = {}  # the same for threads, which ask in any order


def _same_entropy(bits: int) -> int:
    """Return what generators are seeded with, where nobody does: the same on every rank, other in each process."""
    thread = threading.current_thread().name
    asked = _entropy if thread == "MainThread" else _of_threads.setdefault(thread, [_entropy[0], 0])
    asked[1] += 1
    worker = torch.utils.data.get_worker_info()
    process = worker.seed if worker else multiprocessing.current_process()._identity
    return random.Random(repr((asked, thread, process))).getrandbits(bits)


def _seed(self: random.Random, a: Any = None, version: int = 2, own: Any = random.Random.seed) -> None:
    own(self, _same_entropy(128) if a is None else a, version)


def _seed_all(seed: int) -> None:
    random.seed(seed)
    _entropy[:] = seed, 0
    torch.manual_seed(seed)
    if numpy := sys.modules.get("numpy"):  # which PyTorch imports where it is installed
        numpy.random.seed(seed)


def _random_state() -> tuple[Any, ...]:
    """Return the states of the generators that notebooks draw from: Python's, NumPy's, and those of `_generators`."""
    numbers = sys.modules["numpy"].random.get_state() if "numpy" in sys.modules else None
    of_numpy = None if numbers is None else (numbers[0], numbers[1].tobytes(), *numbers[2:])
    return (*random.getstate(), *_entropy), of_numpy, *_generators()


def _are_same_states(before: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    same = before[0] == now[0] and before[1] in (None, now[1])  # None: not used then
    return same and all(a is None or torch.equal(a, b) for a, b in zip(before[2:], now[2:], strict=True))


def _set_random_state(state: tuple[Any, ...]) -> None:
    python, of_numpy, *of_torch = state
    random.setstate(python[:3])
    _entropy[:] = python[3:]
    random.Random.seed = _seed  # type: ignore[method-assign]
    random.seed = random._inst.seed
    torch.seed = lambda: torch.manual_seed(_same_entropy(63)).initial_seed()
    vars(tempfile)["_Random"] = random.SystemRandom  # names of files stay each rank's own
    if of_numpy is not None and (numpy := sys.modules.get("numpy")):
        numpy.random.bit_generator.randbits = _same_entropy
        numpy.random.set_state((of_numpy[0], numpy.frombuffer(of_numpy[1], numpy.uint32), *of_numpy[2:]))
    _set_generators(of_torch)


def _generators() -> list[Any]:
    """Return the states of PyTorch's generators: the CPU's, and this rank's GPU's or None."""
    return [torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None]


def _set_generators(states: list[Any]) -> None:
    torch.set_rng_state(states[0])
    if states[1] is not None:
        torch.cuda.set_rng_state(states[1])
