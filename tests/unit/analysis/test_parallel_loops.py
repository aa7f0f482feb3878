"""Loops whose iterations the ranks can divide, and loops whose iterations depend on one another."""

from __future__ import annotations

from textwrap import indent

import pytest

from nb2ddp.analysis.parallel_loops import independent_loops
from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import LOAD, MAKE

TRAIN = f"{MAKE}trainer = SFTTrainer(model=model)\ntrainer.train()\n"
LOOP = "answers = []\nfor prompt in ['a', 'b']:\n    answers.append(model.generate(prompt))\n"
IN_BLOCK = "answers = []\nwith torch.no_grad():\n    for x in [1, 2]:\n        answers.append(model(x))\n"
IN_FUNCTION = f"def score():\n{indent(LOOP, '    ')}    return answers\n"


def loops(*cells: str) -> list[tuple[tuple[str, ...], list[str]]]:
    """Return the lists that each independent loop fills, and the first lines of the statements that run it."""
    found = independent_loops(facts_of("import os, torch", LOAD, *cells))
    return [(f.results, [cst_nodes.code_of(s).strip().splitlines()[0] for s in f.runs_in]) for f in found]


@pytest.mark.parametrize(
    ("cells", "runs_in"),
    [
        ([LOOP, TRAIN], ["for prompt in ['a', 'b']:"]),
        ([IN_BLOCK, TRAIN], ["with torch.no_grad():"]),
        (
            [IN_FUNCTION, "first = score()\nsecond = score()", TRAIN, "score()"],
            ["first = score()", "second = score()"],
        ),
    ],
)
def test_a_loop_that_can_be_divided(cells: list[str], runs_in: list[str]) -> None:
    assert loops(*cells) == [(("answers",), runs_in)]


WHOLE = {
    "an answer depends on the last one": [LOOP.replace("(prompt)", "(prompt, answers[-1:])"), TRAIN],
    "a name goes from one to the next": [
        LOOP.replace("(prompt)", "(prompt, last)") + "    last = prompt\n",
        TRAIN,
    ],
    "the loop's variable is read later": [LOOP, "print(prompt)", TRAIN],
    "the list is not empty": [LOOP.replace("[]", "['first']"), TRAIN],
    "a file is written": [f"{LOOP}    file.write(prompt)\n", TRAIN],
    "the order may differ": [LOOP.replace("['a', 'b']", "{'a', 'b'}"), TRAIN],
    "under a test": [f"if x:\n{indent(LOOP, '    ')}", TRAIN],
    "nothing is generated": [LOOP.replace("model.generate", "str"), TRAIN],
    "gradients are made": [LOOP.replace("model.generate", "model"), TRAIN],
    "a function that is passed on": [IN_FUNCTION, "score()\nrows.map(score)", TRAIN],
    "after training": [TRAIN, LOOP],
    "without training": [LOOP],
    "divided by hand": [LOOP, TRAIN, "rank = os.environ['RANK']"],
}


@pytest.mark.parametrize("cells", WHOLE.values(), ids=WHOLE)
def test_a_loop_that_every_rank_runs_whole(cells: list[str]) -> None:
    assert not loops(*cells)
