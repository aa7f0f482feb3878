"""Whether a text may name a file, or is only shown, recorded or compared."""

from __future__ import annotations

import pytest

from nb2ddp.analysis.kept_names import is_kept
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import call_to

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
    "an unknown use": "with make() as x:\n    pass",
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
