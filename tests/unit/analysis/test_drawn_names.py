"""Names with a time or a random id in them, and which of them have to be rank 0's."""

from __future__ import annotations

import pytest

from nb2ddp.analysis.drawn_names import is_drawn_name, is_kept, shared_names
from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of
from tests.support.programs import Program, programs
from tests.unit.analysis.questions import MAKE, call_to

START = "import os, random, secrets, tempfile, time, uuid\nfrom datetime import datetime\n"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("f'run-{time.time()}'", True),
        ("str(int(time.time()))", True),
        ("datetime.now().strftime('%d')", True),
        ("uuid.uuid4().hex[:8]", True),
        ("''.join(secrets.choice('ab') for _ in range(8))", True),
        ("os.urandom(4).hex()", True),
        ("''.join(random.choices('ab', k=8))", False),
        ("time.time()", False),
        ("f'took {time.time() - start}'", False),
        ("'run-1'", False),
        ("f'{load()}-{time.time()}'", False),
    ],
)
def test_what_is_a_drawn_name(expression: str, expected: bool) -> None:
    facts = facts_of(START, f"use({expression})")
    assert is_drawn_name(facts, call_to(facts, "use(").args[0].value) == expected


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
        ("random.seed(os.getpid())", ["os.getpid()"]),
        ("print(f'process {os.getpid()}')\nuse(f'a-{os.getpid()}')\ndef use(x):\n    return x", []),
        (
            "def own():\n    a = f'a-{os.getpid()}'\n    os.makedirs(a)\n    return a\nown()",
            ["f'a-{os.getpid()}'"],
        ),
        (f"print({NAME})", []),
        (f"def now():\n    return {NAME}\nprint(now())", []),
        (f"for row in rows:\n    name = {NAME}\n    os.makedirs(name)", []),
        (f"{TRAINER}run = {NAME}\nos.makedirs(run)", []),
    ],
)
def test_which_names_have_to_be_rank_0s(code: str, expected: list[str]) -> None:
    facts = facts_of(START, code)
    assert [cst_nodes.code_of(name) for name in shared_names(facts)] == expected


@pytest.mark.parametrize("program", programs(__file__, "texts"), ids=str)
def test_whether_a_text_may_name_a_file(program: Program) -> None:
    facts = facts_of(*program.cells)
    assert program.answers == (str(is_kept(facts, call_to(facts, program.asked))),)
