"""A name with a time or a random id in it is one name for all ranks."""

from __future__ import annotations

import pytest

from nb2ddp.rules.run_names import rule
from tests.support.helpers import check_rewritten, check_untouched

HEAD = (
    "import os, time, uuid\nimport datetime as dt\nfrom datetime import datetime\n"
    "from trl import SFTConfig, SFTTrainer\n"
)
TRAINS = "trainer = SFTTrainer(model)\ntrainer.train()\n"

NAMES = [
    'f"run-{datetime.now():%H%M}"',
    '"run-" + time.strftime("%Y%m%d")',
    'datetime.now().strftime("%H%M%S")',
    "dt.datetime.now().isoformat()",
    'os.path.join("out", str(int(time.time())))',
    "uuid.uuid4().hex[:8]",
    '"run-%d" % time.time()',
]


@pytest.mark.parametrize("name", NAMES)
def test_a_drawn_name_is_asked_once(name: str) -> None:
    check_rewritten(
        rule,
        f"{HEAD}name = {name}\n{TRAINS}",
        f"{HEAD}name = ddp.from_main_process(lambda: {name})\n{TRAINS}",
    )


def test_nothing_happens_after_training() -> None:
    check_untouched(rule, f'{HEAD}{TRAINS}name = f"{{time.time()}}"\n')
