"""Random draws before training are the same on every rank."""

from __future__ import annotations

import pytest

from nb2ddp.rules.seeds import rule
from tests.support.helpers import apply, check_rewritten, check_untouched

TRAINS = "\nfrom trl import SFTTrainer\ntrainer = SFTTrainer(model, train_dataset=d)\ntrainer.train()\n"
LOADS = "from datasets import load_dataset\nd = load_dataset('x', split='train')\n"


@pytest.mark.parametrize(
    "line",
    [
        "d = d.shuffle(seed=1)",
        "d = d.shuffle(7)",
        "d = d.shuffle(generator=g)",
        "d = d.train_test_split(test_size=0.1, seed=0)",
        "d = d.train_test_split(0.1, shuffle=False)",
        "d = d.shuffle(**options)",
        "cards.shuffle()",
    ],
)
def test_what_has_a_seed_or_needs_none_stays(line: str) -> None:
    check_untouched(rule, LOADS + line + TRAINS)


def test_nothing_happens_after_training() -> None:
    check_untouched(rule, LOADS + TRAINS + "d = d.shuffle()\n")


def test_nothing_happens_where_nothing_trains() -> None:
    check_untouched(rule, LOADS + "d = d.shuffle()\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("d = d.shuffle()", "d = d.shuffle(seed=3407)"),
        ("d = d['train'].shuffle()", "d = d['train'].shuffle(seed=3407)"),
        ("d = d.train_test_split(test_size = 9)", "d = d.train_test_split(test_size = 9, seed = 3407)"),
        ("d = d.shuffle().select(range(9))", "d = d.shuffle(seed=3407).select(range(9))"),
    ],
)
def test_a_dataset_gets_a_seed(before: str, after: str) -> None:
    check_rewritten(rule, LOADS + before + TRAINS, LOADS + after + TRAINS)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("KFold(5, shuffle=True)", "KFold(5, shuffle=True, random_state=3407)"),
        ("StratifiedKFold(shuffle=yes)", "StratifiedKFold(shuffle=yes, random_state=3407)"),
        ("ShuffleSplit(3)", "ShuffleSplit(3, random_state=3407)"),
    ],
)
def test_splitters_of_scikit_learn_that_draw_get_a_seed(before: str, after: str) -> None:
    head = "from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold\n"
    check_rewritten(rule, f"{head}k = {before}\n{TRAINS}", f"{head}k = {after}\n{TRAINS}")


@pytest.mark.parametrize(
    "line", ["KFold(5)", "KFold(5, shuffle=False)", "GroupKFold(3)", "ShuffleSplit(random_state=1)"]
)
def test_splitters_that_draw_nothing_stay(line: str) -> None:
    check_untouched(
        rule, f"from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit\nk = {line}\n{TRAINS}"
    )


@pytest.mark.parametrize(
    "rows", ["df.sample(100)", "df[df.x > 1].sample(100)", "pd.concat([df, df]).sample(100)"]
)
def test_rows_of_a_frame_are_drawn_with_a_seed(rows: str) -> None:
    head = 'import pandas as pd\ndf = pd.read_csv("a.csv")\n'
    seeded = rows.replace("(100)", "(100, random_state=3407)")
    check_rewritten(rule, f"{head}x = {rows}\n{TRAINS}", f"{head}x = {seeded}\n{TRAINS}")


@pytest.mark.parametrize(
    "line", ["import random\nx = random.sample(d, 3)\nrandom.seed(1)", "x = other.sample(100)"]
)
def test_other_samples_get_no_argument(line: str) -> None:
    assert "random_state" not in apply(rule, LOADS + line + TRAINS).code[1]


def test_a_variable_called_sample_hides_no_group() -> None:
    group = 'import pandas as pd\ndf = pd.read_csv("a.csv")\nsample = df.iloc[0]\nx = df.apply(lambda g: g.sample(9))\n'
    assert "g.sample(9, random_state=3407)" in apply(rule, LOADS + group + TRAINS).code[1]


def test_a_sample_method_of_the_notebooks_own_gets_no_argument() -> None:
    own = (
        "import pandas\nclass Buffer:\n    def sample(self, n):\n        return n\nx = Buffer().sample(100)\n"
    )
    assert "random_state" not in apply(rule, LOADS + own + TRAINS).code[1]
