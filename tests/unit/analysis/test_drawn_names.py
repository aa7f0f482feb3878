"""Names with a time or a random id in them, and which of them have to be rank 0's."""

from __future__ import annotations

import pytest

from nb2ddp.analysis.drawn_names import is_drawn_name, is_kept, is_shared, shared_names
from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import MAKE, call_to

START = (
    "import os, random, secrets, tempfile, time, uuid\nfrom datetime import datetime\n"
    "system = random.SystemRandom()\n"
)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("f'run-{time.time()}'", True),
        ("str(int(time.time()))", True),
        ("datetime.now().strftime('%d')", True),
        ("uuid.uuid4().hex[:8]", True),
        ("''.join(random.SystemRandom().choices('ab', k=8))", True),
        ("'run-%d' % system.randint(0, 9)", True),
        ("''.join(secrets.choice('ab') for _ in range(8))", True),
        ("os.urandom(4).hex()", True),
        ("random.SystemRandom()", False),
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
        ("run = ''.join(system.choices('ab'))\nos.makedirs(run)", ["''.join(system.choices('ab'))"]),
        ("run = f(x.join(load(uuid.uuid4()) for x in rows))\nos.makedirs(run)", []),
        ("class A:\n    base = 'a'\n    run = f'{base}-{time.time()}'", ["f'{base}-{time.time()}'"]),
        ("def own():\n    folder = tempfile.mkdtemp()\nown()", []),  # it may be meant to be the process's own
        (f"print({NAME})", []),
        (f"def now():\n    return {NAME}\nprint(now())", []),
        (f"for row in rows:\n    name = {NAME}\n    os.makedirs(name)", []),
        (f"{TRAINER}run = {NAME}\nos.makedirs(run)", []),
    ],
)
def test_which_names_have_to_be_rank_0s(code: str, expected: list[str]) -> None:
    facts = facts_of(START, code)
    found = list(shared_names(facts))
    assert [cst_nodes.code_of(name) for name in found] == expected
    assert all(is_shared(facts, name) for name in found)
    assert not is_shared(facts, None)


SHOWS = "def show(text, more=None):\n    print(more)\n"
SAVES = "def save(more, text):\n    open(text)\n"
RUN = "class Run:\n    def __init__(self):\n        self.name = make()\n"

KEPT = {
    "an argument of a call": "open(make())",
    "a text made with it": "name = f'{make()}.txt'\nfolder = 'a/' + name\nopen(folder)",
    "an argument of a function that uses it": f"{SAVES}save(1, make())",
    "an argument by its name": f"{SAVES}save(text=make(), more=1)",
    "a result": "def f():\n    return make()\nopen(f())",
    "an attribute": f"{RUN}    def save(self):\n        open(self.name)",
    "an argument of a method": "class A:\n    def save(self, text, more):\n        open(text)\nA().save(make(), 1)",
    "unpacked arguments": f"{SHOWS}show(*[make()])",
}
SHOWN = {
    "printed": "name = make()\nprint(f'this is {name}')",
    "an argument of a function that prints another one": f"{SHOWS}show(make())",
    "a result": "def f():\n    return make()\nprint(f())",
    "an attribute": f"{RUN}    def show(self):\n        print(self.name)",
    "a setting that is printed": "settings = dict(name=make())\nprint(settings['name'])",
    "recorded": "rows = [make()]\nothers.append(rows)\njson.dump(rows, f)",
    "compared": "name = make()\nif name == 'a':\n    print('a')",
    "made from itself": "name = make()\nname = name + 'a'",
    "not used": "make()",
}


@pytest.mark.parametrize("code", KEPT.values(), ids=KEPT)
def test_a_text_that_may_name_a_file(code: str) -> None:
    facts = facts_of(code)
    assert is_kept(facts, call_to(facts, "make("))


@pytest.mark.parametrize("code", SHOWN.values(), ids=SHOWN)
def test_a_text_that_names_no_file(code: str) -> None:
    facts = facts_of(code)
    assert not is_kept(facts, call_to(facts, "make("))
