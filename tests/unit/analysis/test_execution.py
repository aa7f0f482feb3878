"""What runs: functions that are called, training, and what comes after it."""

from __future__ import annotations

import libcst as cst
import pytest

from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import LOAD, MAKE, call_to

TRAINER = f"{MAKE}trainer = SFTTrainer(model=m)\n"


@pytest.mark.parametrize(
    ("cells", "last"),
    [
        ([TRAINER, "trainer.train()\nx = 1", "y = 2"], "trainer.train()"),
        ([TRAINER, "trainer.train()", "m = trainer.evaluate()"], "m = trainer.evaluate()"),
        ([TRAINER, "trainer.train()", "if False:\n    trainer.train()"], "trainer.train()"),
        ([TRAINER, "def go():\n    trainer.train()", "go()", "x = 1"], "go()"),
        ([TRAINER, "def go():\n    trainer.train()", "x = 1"], None),
        ([TRAINER, "for i in range(2):\n    trainer.train()"], "for i in range(2):\n    trainer.train()"),
        ([LOAD, "model.train()", "model.eval()"], None),
        (
            [f"from unsloth import unsloth_train\n{TRAINER}", "stats = unsloth_train(trainer)", "x = 1"],
            "stats = unsloth_train(trainer)",
        ),
    ],
)
def test_the_last_statement_that_needs_every_rank(cells: list[str], last: str | None) -> None:
    statement = facts_of(*cells).last_collective
    assert (None if statement is None else cst_nodes.code_of(statement).strip()) == last


def test_what_comes_after_training() -> None:
    facts = facts_of(TRAINER, "before()\ntrainer.train()\nafter()", "later()")
    answers = {code: facts.is_after_training(call_to(facts, code)) for code in ("before", "after", "later")}
    assert answers == {"before": False, "after": True, "later": True}


def test_a_function_runs_what_it_calls() -> None:
    facts = facts_of(
        "def a():\n    b()\ndef b():\n    it()\n", "a()", "x.map(a)", "y = 1", "def c():\n    it()\n"
    )

    def wanted(call: cst.Call) -> bool:
        return cst_nodes.code_of(call) == "it()"

    assert [facts.runs(s, wanted) for s in facts.top_statements] == [False, False, True, True, False, False]


NET = "import torch\nfrom torch import nn\nclass Net(nn.Module):\n    pass\nmodel = Net()\n"
TRAINS = "        for batch in self.loader:\n            self.model(batch).backward()\n"
FIT = f"class Fitter:\n    def __init__(self, model, loader):\n        self.model = model\n    def fit(self):\n{TRAINS}"
STEPS = (
    "class Steps:\n    def train(self):\n        for batch in loader:\n            self.step(batch)\n"
    "    def step(self, batch):\n        raise NotImplementedError\n"
    "    def test(self):\n        self.model.eval()\n        self.model.train()\n"
)
OWN_STEPS = f"{STEPS}class Own(Steps):\n    def step(self, batch):\n        self.loss(batch).backward()\n"

# Cells before the statement that trains, and that statement.
TRAINING = {
    "a method": ([FIT, "fitter = Fitter(model, loader)"], "fitter.fit()"),
    "a method of what a function makes": (
        [FIT, "def make(m):\n    return Fitter(m, loader)\nfitter = make(model)"],
        "fitter.fit()",
    ),
    "a method of what stands in a list": ([FIT, "fitters = [Fitter(model, loader)]"], "fitters[0].fit()"),
    "a method of an instance without a name": ([FIT], "Fitter(model, loader).fit()"),
    "a method of an attribute": (
        [
            FIT,
            "class App:\n    def __init__(self):\n        self.fitter = Fitter(model, loader)\n"
            "    def run(self):\n        self.fitter.fit()\n",
            "app = App()",
        ],
        "app.run()",
    ),
    "a method of a base": ([FIT, "class Mine(Fitter):\n    pass\n", "mine = Mine(model, x)"], "mine.fit()"),
    "super()": (
        [FIT, "class Mine(Fitter):\n    def fit(self):\n        super().fit()\n", "mine = Mine(model, x)"],
        "mine.fit()",
    ),
    "a step of a derived class": ([OWN_STEPS, "own = Own()"], "own.train()"),
    "a constructor": ([FIT.replace("def fit(self)", "def __post_init__(self)")], "Fitter(model, loader)"),
    "a call of an instance": (
        [FIT.replace("def fit(self)", "def __call__(self)"), "fit = Fitter(model, loader)"],
        "fit()",
    ),
    "a function that two others call": (
        [
            "def step(b):\n    model(b).backward()\ndef warm():\n    step(0)\ndef epoch():\n"
            "    for b in loader:\n        step(b)\n",
            "def main():\n    epoch()\n    epoch()\n",
        ],
        "main()",
    ),
    "a function that is passed": (
        ["def closure():\n    model(x).backward()\n"],
        "for i in range(3):\n    optimizer.step(closure)",
    ),
    "a method that is passed": (
        [FIT, "fitter = Fitter(model, loader)"],
        "study.optimize(fitter.fit)",
    ),
    "a generator": (
        [
            "def losses():\n    for b in loader:\n        loss = model(b)\n        loss.backward()\n"
            "        yield loss\n"
        ],
        "for loss in losses():\n    print(loss)",
    ),
    "a function under a test": (
        ["def main():\n    while True:\n        model(x).backward()\n"],
        'if __name__ == "__main__":\n    main()',
    ),
    "a loop around a call": (
        ["def step(b):\n    model(b).backward()\n"],
        "for epoch in range(3):\n    for b in loader:\n        step(b)",
    ),
}

# Cells that train nothing, though a method or a function could.
NOT_TRAINING = {
    "a class alone": [FIT],
    "an instance alone": [FIT, "fitter = Fitter(model, loader)"],
    "a model's train()": [OWN_STEPS, "model.train()"],
    "train() of something that is not known": [OWN_STEPS, "x[0].train()"],
    "a library's method of that name": [FIT, "from sklearn.svm import SVC\nsvc = SVC()\nsvc.fit()"],
    "a method that only switches the model's mode": [OWN_STEPS, "own = Own()", "own.test()"],
    "one backward() outside of loops": ["def step(b):\n    model(b).backward()\n", "step(x)"],
    "functions that call one another": ["def a():\n    b()\n    x.backward()\ndef b():\n    a()\n", "a()"],
}


@pytest.mark.parametrize(("cells", "trains"), TRAINING.values(), ids=TRAINING)
def test_training_in_functions_and_methods_is_seen(cells: list[str], trains: str) -> None:
    statement = facts_of(NET, *cells, trains, "evaluate(model)").last_collective
    assert statement is not None
    assert cst_nodes.code_of(statement).strip() == trains


@pytest.mark.parametrize("cells", NOT_TRAINING.values(), ids=NOT_TRAINING)
def test_what_only_could_train_does_not(cells: list[str]) -> None:
    assert facts_of(NET, *cells).last_collective is None


def test_a_notebooks_method_after_training_is_followed_no_further_than_its_class() -> None:
    last = facts_of(NET, OWN_STEPS, "own = Own()", "own.train()", "own.test()").last_collective
    assert last is not None
    assert cst_nodes.code_of(last).strip() == "own.train()"
