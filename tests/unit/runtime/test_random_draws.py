"""The random states that lie between micro-batches: measured, and reached again without drawing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy
import pytest
import torch

from nb2ddp.runtime.random_draws import _advanced, _drawn, _Draws
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state


@pytest.fixture(autouse=True)
def states() -> Iterator[None]:
    before = _random_state()
    yield
    _set_random_state(before)


DRAWS: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "dropout": lambda: torch.nn.functional.dropout(torch.ones(50, 60)),
    "uniform": lambda: torch.rand(333),
    "normal": lambda: torch.randn(20),
    "order": lambda: torch.randperm(9),
    "python": lambda: [random.random() for _ in range(700)],
    "numpy": lambda: numpy.random.rand(1000),
    "all": lambda: (torch.rand(3), random.random(), numpy.random.rand()),
}


def following() -> list[object]:
    return [random.random(), numpy.random.rand(), torch.rand(3).tolist(), torch.randn(2).tolist()]


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("before", [0, 620, 5000])
def test_an_advanced_state_gives_the_same_numbers(draw: str, before: int) -> None:
    random.seed(1), numpy.random.seed(2), torch.manual_seed(3)
    torch.rand(before), numpy.random.rand(before), [random.random() for _ in range(before)]
    start = _random_state()
    DRAWS[draw]()
    end = _random_state()
    counts = _drawn(start, end)
    assert counts is not None
    expected = following()
    _set_random_state(_advanced(start, counts))
    assert following() == expected


def test_what_leaves_half_a_pair_of_numbers_cannot_be_counted() -> None:
    torch.manual_seed(3)
    start = _random_state()
    random.gauss(0, 1)
    assert _drawn(start, _random_state()) is None


def test_draws_follow_from_the_sizes_of_micro_batches() -> None:
    """As elementwise dropout on hidden states and on attention does."""

    def batch(rows: int, length: int) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.zeros(rows, length), "labels": torch.zeros(rows)}

    def drawn(rows: int, length: int) -> tuple[int, int, int, int]:
        return 0, 0, rows * length * 16 + rows * 2 * length * length, 0

    draws = _Draws()
    shapes = [(2, 8), (2, 5), (2, 11), (1, 7), (3, 4)]
    for step, shape in enumerate(shapes):
        assert not draws.learn([batch(*shape)] * 2, [drawn(*shape)] * 2, step) or step > 2
    assert draws.expected(batch(2, 9)) == drawn(2, 9)
    assert draws.learn([batch(2, 9)] * 2, [drawn(2, 9)] * 2, 9)
    assert draws.expected(batch(2, 8)) == drawn(2, 8)


def test_draws_follow_from_two_lengths() -> None:
    """As in a model with an encoder and a decoder, whose batches may lie in dicts of their own."""

    def batch(rows: int, length: int, other: int) -> dict[str, dict[str, torch.Tensor]]:
        return {"text": {"ids": torch.zeros(rows, length)}, "labels": {"ids": torch.zeros(rows, other)}}

    def drawn(rows: int, length: int, other: int) -> tuple[int, int, int, int]:
        return 0, 0, rows * (length * 16 + 2 * length * length + 3 * length * other + 5 * other * other), 0

    draws = _Draws()
    shapes = [
        (2, 8, 3),
        (2, 5, 7),
        (3, 11, 4),
        (1, 7, 9),
        (3, 4, 6),
        (2, 9, 5),
        (4, 6, 2),
        (1, 3, 8),
        (2, 12, 10),
    ]
    for shape in shapes:
        draws.learn([batch(*shape)] * 2, [drawn(*shape)] * 2, 1000)
    assert draws.expected(batch(3, 10, 7)) == drawn(3, 10, 7)


def test_what_the_last_micro_batch_draws_need_not_be_foreseen() -> None:
    draws = _Draws()
    for step in range(40):
        assert draws.learn([{"x": torch.zeros(2, 3)}], [(0, 0, step, 0)], step)
    assert not draws.why_not


def test_numbers_that_cannot_be_known_are_given_up() -> None:
    draws, inputs = _Draws(), {"x": torch.zeros(2, 3)}
    for step in range(40):
        draws.learn([inputs, inputs], [(0, 0, step, 0)] * 2, step)
    assert "cannot be known" in draws.why_not
    start = _random_state()
    states = draws.states([inputs, inputs], start)
    _set_random_state(start)
    again = draws.states([inputs, inputs], start)
    assert all(torch.equal(one[2], other[2]) for one, other in zip(states, again, strict=True))
    assert not torch.equal(states[1][2], states[2][2])


def test_what_is_expected_takes_no_longer_in_a_long_training() -> None:
    """Nearly every micro-batch without padding has shapes of its own."""
    draws = _Draws()
    for length in range(1, 400):
        draws.learn([{"x": torch.ones(1, length)}], [(0, 0, 7 * length, 0)], length)
    assert len(draws.known) < 100
    assert draws.expected({"x": torch.ones(1, 1000)}) == (0, 0, 7000, 0)
    assert draws.expected({"x": torch.ones(1, 3)}) == (0, 0, 21, 0)
