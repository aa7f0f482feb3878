"""Lines of a report on narrow terminals."""

from __future__ import annotations

import pytest

from nb2ddp.plain_text import wrapped


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("short  line", "short  line"),
        ("2  replicas  passed  equal, bit for bit, at the start and after", "start and after"),
        ("  NCCL: the ranks talk through gloo, as they do on every CPU", "\n    "),
        ("a heading that is longer than the line, and has no column at all", "\n  and has no column"),
    ],
)
def test_a_long_line_is_broken_between_words(line: str, shown: str) -> None:
    found = wrapped(line, 40)
    assert shown in found
    assert max(map(len, found.splitlines())) <= 40
    assert found.split() == line.split()


def test_what_follows_stands_below_its_column() -> None:
    first, *others = wrapped(
        "2  replicas  passed  equal, bit for bit, at the start and after", 40
    ).splitlines()
    assert first.index("passed") < first.index("equal")
    assert {len(other) - len(other.lstrip()) for other in others} == {first.index("passed")}


def test_a_command_stays_on_one_line() -> None:
    command = "`python -m pip install a-package another-package`"
    assert command in wrapped(f"ask for what is missing: {command}, and start again", 40).splitlines()[1]
