"""What code changes that outlasts it, and which values have the same order on every rank."""

from __future__ import annotations

from textwrap import indent

import pytest

from nb2ddp.analysis.side_effects import Effects, is_ordered
from nb2ddp.analysis.training_loops import names_switch
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import LOAD, call_to

START = (
    "import random\nfrom datasets import load_dataset\nfrom lib import Ids\n"
    f"{LOAD}ids = Ids()\nanswers = []\nrows = ['a', 'b']\n"
)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("use(['a', 'b'])", True),
        ("use(zip(rows, range(3)))", True),
        ("use(rows[1:] + rows * 2)", True),
        ("data = load_dataset('a').map(f)\nuse(data)", True),
        ("def f(x):\n    use(x)\nf(rows)", True),
        ("use({'a', 'b'})", False),
        ("use(zip(rows, missing))", False),
        ("def f(x):\n    use(x)", False),
    ],
)
def test_what_has_the_same_order_everywhere(code: str, expected: bool) -> None:
    facts = facts_of(START, code)
    assert is_ordered(facts, call_to(facts, "use(").args[0].value) == expected


CONTAINED = {
    "a list of its own": "own = []\nown.append(row)\nanswers.append(own)",
    "a model that generates": "answers.append(model.generate(row))",
    "a dict of its own": "record = dict(row=row)\nrecord['n'] = 1\nanswers.append(record)",
    "a function without effects": "answers.append(clean(row))",
    "a text": "answers.append(row.strip())",
    "a text by another name": "text = row\nanswers.append(text.strip())",
}
LASTING = {
    "another list": "others.append(row)",
    "an attribute": "state.last = row",
    "a list that something else may have": "own = others\nown.append(row)",
    "random numbers": "answers.append(random.random())",
    "a file": "file.write(row)",
    "a function with an effect": "answers.append(note(row))",
    "a call for its effect": "model.load(row)",
    "a cache": "answers.append(model(row, past_key_values=cache))",
    "an object of an unknown class": "answers.append(ids.next_id())",
    "an object by another name": "own = ids\nanswers.append(own.next_id())",
    "a way out": "break",
}
FUNCTIONS = (
    "others = []\ndef clean(x):\n    return str(x)\ndef note(x):\n    others.append(x)\n    return x\n"
)


def is_contained(body: str) -> bool:
    """Return whether a loop with this body changes nothing but `answers`."""
    facts = facts_of(START, FUNCTIONS, f"for row in rows:\n{indent(body, '    ')}")
    return Effects(facts, ["answers"]).is_contained(facts.loops[-1].body, None)


@pytest.mark.parametrize("body", CONTAINED.values(), ids=CONTAINED)
def test_what_leaves_nothing_behind(body: str) -> None:
    assert is_contained(body)


@pytest.mark.parametrize("body", LASTING.values(), ids=LASTING)
def test_what_lasts(body: str) -> None:
    assert not is_contained(body)


@pytest.mark.parametrize(
    ("code", "expected"), [("torch.no_grad()", True), ("torch.inference_mode()", True), ("timer()", False)]
)
def test_what_switches_gradients_off(code: str, expected: bool) -> None:
    assert names_switch(call_to(facts_of(code), code)) == expected
