"""Names with a time or a random id in them, and which of them have to be rank 0's."""

from __future__ import annotations

import pytest

from nb2ddp.analysis.drawn_names import shared_names
from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import MAKE

START = "import os, random, secrets, tempfile, time, uuid\nfrom datetime import datetime, timedelta\n"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("f'run-{time.time()}'", True),
        ("str(int(time.time()))", True),
        ("datetime.now().strftime('%d')", True),
        ("uuid.uuid4().hex[:8]", True),
        ("''.join(secrets.choice('ab') for _ in range(8))", True),
        ("os.urandom(4).hex()", True),
        ("random.SystemRandom().choice('ab')", True),
        ("str(datetime.now() - timedelta(hours=5))", True),
        ("time.strftime('%H', time.gmtime())", True),
        ("os.environ.get('RUN') or f'run-{time.time()}'", True),
        ("''.join(random.choices('ab', k=8))", False),
        ("time.time()", False),
        ("f'took {time.time() - start}'", False),
        ("time.strftime('%H:%M', time.gmtime(time.time() - start))", False),
        ("f'{time.time()}' == last", False),
        ("'run-1'", False),
    ],
)
def test_which_texts_are_whole_rank_0s(expression: str, expected: bool) -> None:
    names = shared_names(facts_of(START, f"use({expression})"))
    assert [cst_nodes.code_of(name) for name in names] == ([expression] if expected else [])


TRAINER = f"{MAKE}trainer = SFTTrainer(model=m)\ntrainer.train()\n"
LETTERS = "''.join([secrets.choice('ab') for _ in range(8)])"
NAME = "f'run-{time.time()}'"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"run = {NAME}\nos.makedirs(run)", [NAME]),
        (f"def folder():\n    return {NAME}\nos.makedirs(folder())", [NAME]),
        ("folder = tempfile.mkdtemp()", ["tempfile.mkdtemp()"]),
        (f"run = {LETTERS}\nos.makedirs(run)", [LETTERS]),
        ("run = f(x.join(load(uuid.uuid4()) for x in rows))\nos.makedirs(run)", []),
        ("class A:\n    base = 'a'\n    run = f'{base}-{time.time()}'", ["f'{base}-{time.time()}'"]),
        ("def own():\n    folder = tempfile.mkdtemp()\nown()", []),  # it may be meant to be the process's own
        ("for i in [1]:\n    os.listdir(f'a-{os.getpid()}')", ["f'a-{os.getpid()}'"]),
        ("import psutil\npsutil.Process(os.getpid())\npid = os.getpid()\nos.kill(pid, 0)", []),
        (
            "import psutil\npid = os.getpid()\npsutil.Process(pid)\nos.makedirs(f'a-{pid}')\nos.listdir(f'a-{pid}')",
            ["os.getpid()"],
        ),
        ("random.seed(os.getpid())", []),  # the rule seeds sees to it
        (
            "print(f'process {os.getpid()}')\nuse(f'a-{os.getpid()}')\ndef use(x):\n    return x",
            ["f'a-{os.getpid()}'"],
        ),
        (
            "def own():\n    a = f'a-{os.getpid()}'\n    os.makedirs(a)\n    return a\nown()",
            ["f'a-{os.getpid()}'"],
        ),
        (f"print({NAME})", []),
        (f"def now():\n    return {NAME}\nprint(now())", [NAME]),
        (f"for row in rows:\n    name = {NAME}\n    os.makedirs(name)", []),
        (f"{TRAINER}run = {NAME}\nos.makedirs(run)", []),
    ],
)
def test_which_names_have_to_be_rank_0s(code: str, expected: list[str]) -> None:
    facts = facts_of(START, code)
    assert [cst_nodes.code_of(name) for name in shared_names(facts)] == expected
