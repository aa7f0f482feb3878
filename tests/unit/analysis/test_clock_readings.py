"""What a process reads from its own clock, through names, attributes and functions."""

from __future__ import annotations

import pytest

from nb2ddp.analysis.clock_readings import answers_by_clock, has_clock, tells_time
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import call_to

START = "import time, datetime\nstart = time.time()\n"
LATE = "time.time() - start > 60"
OVER = f"def over():\n    if {LATE}:\n        return True\n    return False\n"
FLAG = f"def over():\n    ans = False\n    if {LATE}:\n        ans = True\n    return ans\n"
WHILE = f"def over():\n    while {LATE}:\n        return True\n    return False\n"
OF_OBJECT = f"class A:\n    def over(self):\n        if {LATE}:\n            self.ans = True\n        return self.ans\n"
SHARED = f"{FLAG.replace('    ans = False', '    global ans')}"
TIMER = "class Timer:\n    def stop(self):\n        self.spent = time.time() - start\n"


def reading(code: str) -> str:
    """Return whether what `use()` gets is an "answer" by the clock, a "time", or "" for neither."""
    facts = facts_of(START, code)
    value = call_to(facts, "use(").args[0].value
    assert tells_time(facts, value) or not answers_by_clock(facts, value)
    return "answer" if answers_by_clock(facts, value) else "time" if tells_time(facts, value) else ""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("use(time.time() - start)", "time"),
        ("use((datetime.datetime.now() - begun).total_seconds())", "time"),
        ("spent = 0\nfor row in rows:\n    use(spent)\n    spent += time.time() - start", "time"),
        ("use(round(time.time() - start) > 60)", "answer"),
        ("use(step > 9 and time.time() - start > 60)", "answer"),
        (f"{OVER}use(over())", "answer"),
        (f"{FLAG}use(over())", "answer"),
        (f"{FLAG.replace('return ans', 'return not ans or x')}use(over())", "answer"),
        (f"{WHILE}use(over())", "answer"),
        (f"{OF_OBJECT}use(a.over())", "answer"),
        (f"{SHARED}use(over())", "answer"),
        (f"{TIMER}use(timer.spent > 60)", "answer"),
        ("use(time.time() == start)", ""),
        (f"{FLAG.replace('return ans', 'return x')}use(over())", ""),
        (f"{FLAG.replace(LATE, 'x')}use(over())", ""),
        (f"{SHARED}over()\nif ans:\n    use(over())", ""),  # the other test asks for the flag
        ("use(step > 60)", ""),
        (f"{TIMER}other.spent = load()\nuse(other.spent > 60)", ""),
        ("def from_main_process():\n    return time.time() - start > 60\nuse(from_main_process())", ""),
    ],
)
def test_what_is_read_from_the_clock(code: str, expected: str) -> None:
    assert reading(code) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("from time import monotonic as now\nnow()", True),
        ("import time\ntime.sleep(1)", False),
        ("import time\nif False:\n    time.time()", False),
    ],
)
def test_whether_a_clock_is_read_at_all(code: str, expected: bool) -> None:
    assert has_clock(facts_of(code)) == expected
