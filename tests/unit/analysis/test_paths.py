"""Which expressions are paths, and which lie in a rank's own temporary directory."""

from __future__ import annotations

import pytest

from nb2ddp.analysis.files import is_in_own_folder, is_path, names_file
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import call_to

START = "import io, os, tempfile, time\nfrom pathlib import Path\n"
WITH = "with tempfile.TemporaryDirectory() as folder:\n"
HOLDER = "class Holder:\n    def __init__(self):\n        self.folder = tempfile.TemporaryDirectory()\n"
FUNCTION = f"def f(folder):\n    use(folder + '/a')\n{WITH}    f(folder)\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("folder = Path('a')\nuse(folder / name)", "path file"),
        ("use(name / 'a.txt')", "path file"),
        ("use(Path('a').resolve().parent)", "path file"),
        ("use(f'{name}.txt')", "file"),
        ("name = 'a'\nuse(name + suffix)", "file"),
        (f"{WITH}    use(folder + '/a')", "file own"),
        (FUNCTION, "file own"),
        (f"{HOLDER}holder = Holder()\nuse(holder.folder.name)", "own"),
        ("buffer = io.BytesIO()\nuse(buffer)", "own"),
        ("folder = tempfile.mkdtemp()\nuse(folder + '/a')", "file"),  # rank 0's, which all ranks know
        ("file = open('a')\nuse(file)", ""),
        ("use(missing)", ""),
        ("a = b\nb = a\nuse(a)", ""),
    ],
)
def test_what_an_expression_names(code: str, expected: str) -> None:
    facts = facts_of(START, code)
    value = call_to(facts, "use(").args[0].value
    answers = {
        "path": is_path(facts, value),
        "file": names_file(facts, value),
        "own": is_in_own_folder(facts, value),
    }
    assert [name for name, answer in answers.items() if answer] == expected.split()
