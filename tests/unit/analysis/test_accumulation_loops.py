"""Micro-batches that ranks can take in turn, and loops in which something else needs what is computed."""

from __future__ import annotations

import textwrap

import pytest

from nb2ddp.analysis.accumulation_loops import turns_of
from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of

LOOP = """\
import random, torch
for step in range(100):
    optimizer.zero_grad()
    total = 0.0
    for micro in range(n):
{}
    optimizer.step()
    print(total)
"""

Turns = tuple[str, tuple[str, ...], bool]  # the statement, the sums, whether its arguments draw numbers


def turns(body: str, around: str = LOOP) -> Turns | None:
    """Return what is known of the turns of the inner loop with this body."""
    facts = facts_of(around.format(textwrap.indent(body, " " * 8)))
    (loop,) = [loop for loop in facts.loops if facts.order(loop) > facts.order(facts.loops[0])]
    calls = [call for call in facts.calls_in(loop) if cst_nodes.code_of(call.func) == "model"]
    found = turns_of(facts, loop, calls)
    if found is None:
        return None
    assert (found.turn, found.count) == ("micro", "n")
    return cst_nodes.code_of(found.statement).strip(), found.sums, found.draws


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("model(rows[micro]).backward()", ("model(rows[micro]).backward()", (), False)),
        (
            "x = rows[micro]\nloss = model(x)\nloss.backward()\ntotal += loss.item()",
            ("loss = model(x)", ("total",), False),
        ),
        ("model(x=torch.rand(2)).backward()", ("model(x=torch.rand(2)).backward()", (), True)),
    ],
)
def test_what_belongs_to_one_rank(body: str, expected: Turns) -> None:
    assert turns(body) == expected


NEEDED = {
    "a list that grows": "loss = model(x)\nloss.backward()\nlosses.append(loss.item())",
    "a value that is read after the loop": "total = model(x)\ntotal.backward()",
    "a value that the next micro-batch reads": "loss = model(x, state)\nstate = loss\nloss.backward()",
    "a sum that is read on the way": "loss = model(x)\nloss.backward()\ntotal += loss.item()\nprint(total)",
    "a sum that is lowered": "loss = model(x)\nloss.backward()\ntotal -= loss.item()",
    "a way out": "loss = model(x)\nif loss > 9:\n    break\nloss.backward()",
    "a step of each micro-batch": "model(x).backward()\noptimizer.step()",
    "two calls of the model": "loss = model(x) + model(y)\nloss.backward()",
    "random numbers for an argument without a name": "model(torch.rand(2)).backward()",
    "random numbers after the call": "loss = model(x)\nloss = loss * random.random()\nloss.backward()",
}


@pytest.mark.parametrize("body", NEEDED.values(), ids=NEEDED)
def test_what_every_rank_has_to_compute(body: str) -> None:
    assert turns(body) is None


def test_a_loop_in_a_function_is_not_divided_so() -> None:
    assert turns("    model(x).backward()", f"def f():\n{textwrap.indent(LOOP, '    ')}") is None


def test_random_numbers_of_the_outer_loop_may_choose_rows() -> None:
    assert turns("model(x).backward()", LOOP.replace("total = 0.0", "x = torch.randint(9, (2,))")) is None
