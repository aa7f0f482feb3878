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


def test_scikit_learn_and_pandas_have_their_own_word_for_it() -> None:
    check_rewritten(
        rule,
        "from sklearn.model_selection import train_test_split\na, b = train_test_split(x)\n"
        "c = frame.sample(frac=1)\nd = 0" + TRAINS,
        "from sklearn.model_selection import train_test_split\n"
        "a, b = train_test_split(x, random_state=3407)\n"
        "c = frame.sample(frac=1, random_state=3407)\nd = 0" + TRAINS,
    )


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


@pytest.mark.parametrize(
    "seeding",
    [
        "import numpy as np\nnp.random.seed(42)\n",
        "from transformers import set_seed\nset_seed(42)\n",
        "import numpy as np\ndef seed_all(seed):\n    np.random.seed(seed)\nseed_all(42)\n",
    ],
)
def test_what_the_notebook_seeds_keeps_its_numbers(seeding: str) -> None:
    split = "from sklearn.model_selection import train_test_split\na, b = train_test_split(x)\n"
    check_untouched(rule, LOADS + seeding + split + "d = d.shuffle()" + TRAINS)


def test_a_stream_is_not_seeded_by_numpy() -> None:
    head = "from datasets import load_dataset\nimport numpy as np\nnp.random.seed(42)\n"
    head += 'd = load_dataset("d", split="train", streaming=True)\n'
    check_rewritten(rule, head + "d = d.shuffle()" + TRAINS, head + "d = d.shuffle(seed=3407)" + TRAINS)


def test_a_seed_of_the_random_module_does_not_count_for_numpy() -> None:
    seeding = "import random\nrandom.seed(1)\n"
    check_rewritten(
        rule, f"{LOADS}{seeding}d = d.shuffle(){TRAINS}", f"{LOADS}{seeding}d = d.shuffle(seed=3407){TRAINS}"
    )


@pytest.mark.parametrize(
    ("line", "needs"),
    [
        ("import random\nrandom.shuffle(d)", {"seed"}),
        ("import numpy as np\nx = np.random.randn(3)", {"seed"}),
        ("import random\nrandom.seed(3)\nrandom.shuffle(d)", set()),
        ("from transformers import set_seed\nimport random\nset_seed(1)\nrandom.shuffle(d)", set()),
        ("import numpy as np\ng = np.random.default_rng(0)", set()),
    ],
)
def test_global_generators_are_seeded_unless_the_notebook_does(line: str, needs: set[str]) -> None:
    result = apply(rule, LOADS + line + TRAINS)
    assert {need.kind for need in result.needs} == needs
    assert bool(result.notes) == bool(needs)


@pytest.mark.parametrize(
    "search",
    [
        "import optuna\nstudy = optuna.create_study()\nstudy.optimize(objective)\n",
        "import wandb\nwandb.agent(sweep, train)\n",
    ],
)
def test_a_search_that_every_rank_would_make_for_itself_is_declined(search: str) -> None:
    (declined,) = apply(rule, search + TRAINS).declined
    assert "hyperparameter_search" in declined.why


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "import numpy as np\nr = np.random.default_rng()",
            "import numpy as np\nr = np.random.default_rng(3407)",
        ),
        ("import random\nr = random.Random()", "import random\nr = random.Random(3407)"),
        (
            "from sklearn.utils import resample\nx = resample(x, n_samples=5)",
            "from sklearn.utils import resample\nx = resample(x, n_samples=5, random_state=3407)",
        ),
        (
            "import sklearn.utils\nx = sklearn.utils.shuffle(x)",
            "import sklearn.utils\nx = sklearn.utils.shuffle(x, random_state=3407)",
        ),
        (
            "from datasets import interleave_datasets\nd = interleave_datasets([a, b], probabilities=p)",
            "from datasets import interleave_datasets\n"
            "d = interleave_datasets([a, b], probabilities=p, seed=3407)",
        ),
        (
            "import pandas as pd\nx = pd.concat([g.sample(10) for g in groups])",
            "import pandas as pd\nx = pd.concat([g.sample(10, random_state=3407) for g in groups])",
        ),
        (
            "import torch\norder = torch.randperm(9)",
            "import torch\norder = torch.randperm(9, generator=torch.Generator().manual_seed(3407))",
        ),
        (
            "import torch\na, b = torch.utils.data.random_split(d, [9, 1])\ntorch.manual_seed(0)",
            "import torch\na, b = torch.utils.data.random_split("
            "d, [9, 1], generator=torch.Generator().manual_seed(3407))\ntorch.manual_seed(0)",
        ),
        ("labels = list(set(rows))", "labels = ddp.from_main_process(lambda: list(set(rows)))"),
        (
            "texts = tuple({t for t in rows})",
            "texts = ddp.from_main_process(lambda: tuple({t for t in rows}))",
        ),
        (
            "ids = {l: i for i, l in enumerate(set(rows))}\nfor i, l in enumerate(set(rows)):\n    print(i)",
            "ids = {l: i for i, l in enumerate(set(rows))}\n"
            "for i, l in enumerate(ddp.from_main_process(lambda: list(set(rows)))):\n    print(i)",
        ),
    ],
)
def test_what_each_process_would_draw_for_itself_is_the_same(before: str, after: str) -> None:
    check_rewritten(rule, before + TRAINS, after + TRAINS)


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np\nr = np.random.default_rng(7)",
        "from sklearn.utils import shuffle\nx = shuffle(x, random_state=1)",
        "from datasets import interleave_datasets\nd = interleave_datasets([a, b])",
        "import torch\ntorch.manual_seed(0)\norder = torch.randperm(9)",
        "import torch\norder = torch.randperm(9, generator=g)",
        "labels = sorted(set(rows))\nn = len(set(rows))",
        "def unique(rows):\n    return list(set(rows))",  # may run on one rank alone
        "for part in parts:\n    x = list(set(part))",
        "import json\nwith open('l.json', 'w') as f:\n    json.dump(list(set(rows)), f)",  # rank 0 writes
        "import os\nif not os.path.exists('l'):\n    x = list(set(rows))",  # rank 0 first, then the others
        "from datasets import Dataset\nd = Dataset.from_dict({'t': list(set(rows))}).map(f)",
        "x = list(set(llm.generate(p)))\nprint(x)",
        "import numpy as np\ndef mask(row):\n    return np.random.default_rng().random()",
        "import torch\nfor row in rows:\n    mixed = row[torch.randperm(9)]",
        "import random\nrandom.seed(1)\nx = random.sample(rows, 3)",
    ],
)
def test_what_is_drawn_alike_already_stays(source: str) -> None:
    assert not check_untouched(rule, source + TRAINS).needs


def test_the_seed_of_another_generator_does_not_count() -> None:
    source = "import random\nimport numpy as np\nrandom.seed(42)\norder = np.random.permutation(9)"
    helpers = {need.kind for need in check_untouched(rule, source + TRAINS).needs}
    assert helpers == {"seed"}
