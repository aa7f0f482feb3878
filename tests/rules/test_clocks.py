"""What stops by the clock stops on all ranks at once."""

from __future__ import annotations

import pytest

from nb2ddp.rules.clocks import rule
from tests.support.helpers import check_rewritten, check_untouched

HEAD = "import time\nfrom datetime import datetime\nfrom trl import SFTTrainer\n"
TRAIN = "t = SFTTrainer(llm)\nt.train()\n"
CALLBACK = "class Limit:\n    def on_step_end(self, args, state, control):\n"

ASKED = {
    "in a loop": (
        "for row in rows:\n    loss.backward()\n    if {}:\n        break\n",
        "time.time() - start > LIMIT",
    ),
    "a time that was kept": (
        CALLBACK + "        spent = time.perf_counter() - start\n        if {}:\n"
        "            control.should_training_stop = True\n",
        "spent > 60",
    ),
    "rounds of training": (
        "tr = SFTTrainer(llm)\nfor i in range(9):\n    tr.train()\n    if {}:\n        raise SystemExit\n",
        "time.monotonic() > end",
    ),
}

LEFT_ALONE = {
    "waiting for something": "while True:\n    if time.time() - start > 60:\n        raise TimeoutError\n",
    "one rank alone": (
        CALLBACK + "        if state.is_world_process_zero:\n            if time.time() > end:\n"
        "                control.should_training_stop = True\n"
    ),
    "a report": "if time.time() - start > 60:\n    print('slow')\n",
    "a time that is only kept": "start = time.time()\n",
    "another condition": "start = time.time()\nfor x in xs:\n    if x > 1:\n        break\n",
    "a question in the body": "for x in xs:\n    if x:\n        y = time.time() > 1\n        break\n",
}


@pytest.mark.parametrize(("source", "test"), ASKED.values(), ids=ASKED.keys())
def test_all_ranks_ask_one_clock(source: str, test: str) -> None:
    shared = f"ddp.from_main_process(lambda: {test})"
    check_rewritten(rule, HEAD + source.format(test) + TRAIN, HEAD + source.format(shared) + TRAIN)


def test_the_clock_alone_is_shared() -> None:
    loop = "for x in xs:\n    x.backward()\n    if loss < 1 or {}:\n        break\n"
    plain, shared = "datetime.now() > end", "ddp.from_main_process(lambda: datetime.now() > end)"
    check_rewritten(rule, HEAD + loop.format(plain) + TRAIN, HEAD + loop.format(shared) + TRAIN)


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE.keys())
def test_what_nothing_ends_by_is_left_alone(source: str) -> None:
    check_untouched(rule, HEAD + source + TRAIN)


def test_after_training_rank_0_is_alone() -> None:
    check_untouched(rule, HEAD + TRAIN + "for x in xs:\n    if time.time() > end:\n        break\n")
