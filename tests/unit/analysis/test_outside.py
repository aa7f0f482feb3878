"""What may differ between ranks: what comes from the machine, another process or a thread."""

from __future__ import annotations

import pytest

from nb2ddp.analysis.outside import from_outside
from tests.support.helpers import facts_of

BEFORE = """
import math, os, queue, random, redis
import numpy as np
from psutil import virtual_memory
jobs = queue.Queue()
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
        ("os.environ.get('STEPS') == '3'", False),
        ("math.isnan(np.float32(3))", False),
        ("random.random() > 0.5", False),
        ("unknown.item() > 3", False),
    ],
)
def test_what_a_test_is_made_of(test: str, expected: bool) -> None:
    facts = facts_of(BEFORE, f"if {test}:\n    pass")
    asked = next(node for cell in facts.cells for node in cell.module.body if hasattr(node, "test"))
    assert from_outside(facts, asked.test) is expected
