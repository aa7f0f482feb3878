"""Which expressions are paths, whose they are, and which folders are made after a look at the files that are there."""

from __future__ import annotations

import pytest

from nb2ddp.analysis import rank_zero_work as work
from nb2ddp.analysis.common_paths import makes_folder
from nb2ddp.analysis.files import counted, is_given_path, may_exist, own_folder, path
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import call_to

PATHS = "import io, os, tempfile, time\nfrom pathlib import Path\n"
WITH = "with tempfile.TemporaryDirectory() as folder:\n"
HOLDER = "class Holder:\n    def __init__(self):\n        self.folder = tempfile.TemporaryDirectory()\n"
FUNCTION = f"def f(folder):\n    use(folder + '/a')\n{WITH}    f(folder)\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("folder = Path('a')\nuse(folder / name)", "path file"),
        ("use(name / 'a.txt')", "path file"),
        ("use(Path('a').resolve().parent)", "path file"),
        ("use(Path('a').rename('b'))", "path file"),
        ("use(given.with_suffix('.b'))", "path file"),
        ("use('a'.replace('a', 'b'))", "file"),
        ("use(f'{name}.txt')", "file"),
        ("name = 'a'\nuse(name + suffix)", "file"),
        ("column = frame['a'] + 'b'\nuse(column)", "file"),  # not a Path: rename() gives another one
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
    facts = facts_of(PATHS, code)
    value = call_to(facts, "use(").args[0].value
    answers = {
        "path": facts.carries(value, path),
        "file": is_given_path(facts, call_to(facts, "use(")),
        "own": facts.carries(value, own_folder),
    }
    assert [name for name, answer in answers.items() if answer] == expected.split()


# ---- looks at files -----------------------------------------------------------------------------

START = "import os\nfrom pathlib import Path\nfrom trl import SFTTrainer\ntrainer = SFTTrainer(model=m)\n"


@pytest.mark.parametrize(
    ("code", "alone"),
    [
        ("n = len(os.listdir('a'))\nos.makedirs(f'a/{n}', exist_ok=True)", True),
        ("found = os.path.isdir('a')\nos.makedirs('a/b', exist_ok=True)", True),
        ("here = os.listdir('.')\nos.makedirs('a', exist_ok=True)", True),
        ("os.makedirs('a', exist_ok=True)\nfound = os.path.isdir('a')", False),
        ("found = os.path.isdir('/a')\nos.makedirs('a', exist_ok=True)", True),  # it may be the same
        ("found = os.path.isdir('../a')\nos.makedirs('b', exist_ok=True)", True),
        ("d = 'a'\nd = 'b'\nfound = os.path.isdir(d)\nos.makedirs('a', exist_ok=True)", True),
        ("def find():\n    return os.path.isdir('a')\nd = find()\nos.makedirs(d, exist_ok=True)", True),
        ("def find():\n    return os.path.isdir('a')\nd = find()\nos.makedirs('b', exist_ok=True)", True),
        ("def look():\n    os.listdir('a')\nos.makedirs('a', exist_ok=True)", True),
    ],
)
def test_a_folder_that_may_exist_is_for_rank_0_where_its_files_are_looked_for(code: str, alone: bool) -> None:
    facts = facts_of(START, code)
    assert work.writes(facts, call_to(facts, "os.makedirs")) == alone


@pytest.mark.parametrize(
    ("before", "alone"),
    [
        ("n = len(os.listdir('a'))", True),
        ("n = 0\nwhile os.path.exists(f'a/{n}'):\n    n += 1", True),
        ("m = len(os.listdir('a'))\n# %%\nn = m + 1", True),
        ("rest = os.listdir('a')", True),
    ],
)
def test_a_look_in_another_cell_counts(before: str, alone: bool) -> None:
    facts = facts_of(START, *before.split("# %%"), "os.makedirs(f'a/{n}', exist_ok=True)")
    assert work.writes(facts, call_to(facts, "os.makedirs")) == alone


@pytest.mark.parametrize(
    ("code", "numbered"),
    [
        ("if x:\n    n = len(os.listdir('a'))\n    os.makedirs(f'a/{n}')", True),
        (
            "if x:\n    while Path(f'a{n}').exists():\n        n += 1\n    p = Path(f'a{n}')\n    p.mkdir()",
            True,
        ),
        ("if x:\n    n = len(os.listdir('a'))\n    os.makedirs('b')", False),
        ("if x:\n    for n in os.listdir('a'):\n        os.makedirs(f'b/{n}')", False),
        ("if x:\n    n = len(os.listdir('a'))\n    print(n)", False),
    ],
)
def test_a_statement_that_counts_to_a_free_name_is_numbered(code: str, numbered: bool) -> None:
    facts = facts_of(START, code)
    made = [call for call in facts.calls if makes_folder(facts, call)]
    assert any(facts.carries(call, counted) for call in made) == numbered


def test_only_a_literal_true_lets_a_folder_exist() -> None:
    facts = facts_of(START, "os.makedirs('a', exist_ok=True)", "os.mkdir('b')", "Path('c').mkdir(exist_ok=y)")
    calls = [call_to(facts, name) for name in ("os.makedirs", "os.mkdir", "Path('c').mkdir")]
    assert [may_exist(facts, call) for call in calls] == [True, False, False]
