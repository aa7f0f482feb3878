"""Questions that depend on one another: each is evaluated once, cycles and deep chains included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

import pytest

from nb2ddp.analysis.solver import Solver


def reaching(graph: dict[str, str], goals: str) -> tuple[Solver[str, bool], Counter[str]]:
    """Return a solver for whether a node reaches one of the goals, and how often each was evaluated."""
    evaluated: Counter[str] = Counter()

    def steps(node: str) -> Generator[str, bool, bool]:
        evaluated[node] += 1
        for other in graph[node]:
            if other in goals or (yield other):
                return True
        return False

    return Solver(steps, False), evaluated


@pytest.mark.parametrize("order", ["abcd", "dcba", "bdac"])
@pytest.mark.parametrize(
    ("graph", "reach"),
    [
        ({"a": "b", "b": "c", "c": "d", "d": ""}, ""),
        ({"a": "b", "b": "c", "c": "d", "d": "!"}, "abcd"),
        ({"a": "b", "b": "a", "c": "d", "d": "c"}, ""),
        ({"a": "b", "b": "a!", "c": "ab", "d": "d"}, "abc"),
        ({"a": "bc", "b": "a", "c": "bd", "d": "!"}, "abcd"),
        ({"a": "bd", "b": "ca", "c": "b", "d": "!"}, "abcd"),
    ],
)
def test_the_answer_does_not_depend_on_who_asks_first(order: str, graph: dict[str, str], reach: str) -> None:
    solver, _ = reaching(graph, "!")
    assert "".join(sorted(node for node in order if solver.solve(node))) == reach


def test_a_cycle_without_a_goal_is_evaluated_once() -> None:
    solver, evaluated = reaching({"a": "b", "b": "c", "c": "ab"}, "!")
    assert not any(solver.solve(node) for node in "abc")
    assert set(evaluated.values()) == {1}


def test_a_chain_may_be_longer_than_the_stack() -> None:
    def steps(number: int) -> Generator[int, bool, bool]:
        return number == 100_000 or (yield number + 1)

    assert Solver(steps, False).solve(0)
