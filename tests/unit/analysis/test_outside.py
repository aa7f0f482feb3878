"""What may differ between ranks: what comes from the machine, another process or a thread."""

from __future__ import annotations

import libcst as cst
import pytest

from nb2ddp.analysis.outside import by_clock, from_outside
from tests.support.helpers import facts_of

BEFORE = """
import argparse, math, os, queue, random, redis
import numpy as np
from psutil import virtual_memory
jobs = queue.Queue()
args = argparse.ArgumentParser().parse_args()
class Stop:
    def __init__(self, limit):
        self.limit = limit
        self.client = redis.Redis()
    def full(self):
        return virtual_memory().percent > self.limit
    def over(self, step):
        return step > self.limit
    def asked(self):
        if self.client.get("stop"):
            return True
        return False
stop = Stop(90)
used = virtual_memory()
seen = {"used": used, "steps": 3}
"""


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("virtual_memory().percent > 90", True),
        ("used.percent > 90", True),
        ("seen['used'].percent > 90", True),
        ("seen['steps'] > 2", False),
        ("stop.full()", True),
        ("stop.asked()", True),
        ("stop.over(3)", False),
        ("jobs.empty()", True),
        ("len(os.listdir('.')) > 3", True),
        ("os.getloadavg()[0] > 3 or True", True),
        ("input() == 'q'", True),
        ("args.steps > 3", False),
        ("os.environ.get('STEPS') == '3'", False),
        ("math.isnan(np.float32(3))", False),
        ("random.random() > 0.5", False),
        ("unknown.item() > 3", False),
    ],
)
def test_what_a_test_is_made_of(test: str, expected: bool) -> None:
    facts = facts_of(BEFORE, f"if {test}:\n    pass")
    asked = next(node for cell in facts.cells for node in cell.module.body if hasattr(node, "test"))
    assert facts.carries(asked.test, from_outside) is expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("spent = 0\nfor row in rows:\n    spent += time.time() - start\nif spent > 60:\n    pass", True),
        ("loss, took = 1, time.time() - start\nif took > 60:\n    pass", True),
        ("loss, took = 1, time.time() - start\nif loss > 60:\n    pass", False),
        ("def over():\n    if time.time() > start:\n        return True\nif over():\n    pass", True),
        ("def run():\n    return 1, time.time()\nloss, took = run()\nif loss > 60:\n    pass", False),
        ("import datetime as dt\nif dt.date.today() > end:\n    pass", True),
        ("if virtual_memory().percent > 90:\n    pass", False),
    ],
)
def test_what_is_made_of_the_time(code: str, expected: bool) -> None:
    facts = facts_of("import time\nfrom psutil import virtual_memory\nstart = time.time()", code)
    asked = facts.nodes(cst.If)[-1]
    assert facts.carries(asked.test, by_clock) is expected
