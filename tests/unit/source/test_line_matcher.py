"""Lines are compared as difflib does, in time that grows with their number."""

from __future__ import annotations

import difflib
import random
import time

import pytest

from nb2ddp.source.line_matcher import LineMatcher


def test_few_lines_are_matched_as_difflib_does() -> None:
    dice = random.Random(1)
    for _ in range(50):
        before = [dice.choice("abcd") for _ in range(dice.randint(0, 60))]
        after = [dice.choice("abcd") for _ in range(dice.randint(0, 60))]
        own = difflib.SequenceMatcher(None, before, after, autojunk=False)
        assert LineMatcher(before, after).get_opcodes() == own.get_opcodes()


@pytest.mark.parametrize("letters", [2, 30, 5000])
def test_many_lines_are_matched_truly(letters: int) -> None:
    dice = random.Random(letters)
    before = [str(dice.randrange(letters)) for _ in range(3000)]
    after = [line for line in before if dice.random() > 0.1]
    for _ in range(100):
        after.insert(dice.randrange(len(after)), "new")
    made, at = [], 0
    for kind, a, b, c, d in LineMatcher(before, after).get_opcodes():
        assert a == at
        at = b
        if kind == "equal":
            assert before[a:b] == after[c:d]
        made += after[c:d]
    assert (made, at) == (after, len(before))
    equal = sum(block.size for block in LineMatcher(before, after).get_matching_blocks())
    assert equal > 0.6 * len(before) or letters == 2


MANY = {
    "blank": (["x", *[""] * 16_000, "y"], ["x", *[""] * 15_999, "z"]),
    "blank between": (["a", ""] * 8000, ["b", ""] * 8000),
    "every other": ([f"{n}" for n in range(16_000)], [f"{n}" if n % 2 else f"x{n}" for n in range(16_000)]),
    "turned round": ([f"{n}" for n in range(16_000)], [f"{n}" for n in range(16_000)][::-1]),
    "two of each": (["a", "b", "c"] * 5000, ["c", "b", "a"] * 5000),
    "nothing alike": (["a"] * 16_000, ["b"] * 16_000),
    "moved": (
        [f"{n // 2}" for n in range(16_000)],
        [f"{n // 2}" for n in [*range(8000, 16_000), *range(8000)]],
    ),
}


@pytest.mark.parametrize("name", MANY)
def test_many_lines_are_matched_in_little_time(name: str) -> None:
    """difflib takes minutes for some of these."""
    before, after = MANY[name]
    start = time.process_time()
    blocks = LineMatcher(before, after).get_matching_blocks()
    assert time.process_time() - start < 5
    for a, b, size in blocks:
        assert before[a : a + size] == after[b : b + size]
