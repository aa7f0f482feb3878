"""What says by its name what a hand-written loop trains, and the statements that train."""

from __future__ import annotations

import pytest

from nb2ddp.analysis.training_loops import named_models, optimizers, trainings
from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import MAKE

START = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\nfrom tqdm import tqdm\n"
NET = "class Net(nn.Module):\n    pass\nmodel, other = Net(), Net()\n"


@pytest.mark.parametrize(
    ("code", "models"),
    [
        ("opt = torch.optim.Adam(model.parameters())", ["model after"]),
        ("opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])", ["model after"]),
        ("fit(model, torch.optim.Adam(model.parameters()))", ["model before"]),
        (
            "opt = torch.optim.Adam([*model.parameters(), *other.parameters()])",
            ["model after", "other after"],
        ),
        ("def make(net):\n    return torch.optim.Adam(net.parameters())", ["net before"]),
        (
            "class A:\n    def f(self):\n        self.o = torch.optim.Adam(self.net.parameters())",
            ["self.net after"],
        ),
        ("solver = make(model.parameters())\nsolver.step()", ["model after"]),
        ("import zoo\nfrom zoo import net\nopt = torch.optim.Adam(net.parameters())", ["net after"]),
        # what the run finds: parts, items, and names that may have no value
        ("opt = torch.optim.Adam(model.head.parameters())", []),
        ("opt = torch.optim.Adam(nets[0].parameters())", []),
        ("opt = torch.optim.Adam(gone.parameters())", []),
        ("opt = torch.optim.Adam(model.parameters() if big else other.parameters())", []),
        ("opt = torch.optim.Adam([p for net in (model, other) for p in net.parameters()])", []),
        ("make = {1: lambda net: torch.optim.Adam(net.parameters())}", []),
        ("def make():\n    net = Net(); return torch.optim.Adam(net.parameters())", []),
        ("params = list(model.parameters())\nopt = torch.optim.Adam(params)", []),
    ],
)
def test_the_models_that_an_optimizer_is_given_by_name(code: str, models: list[str]) -> None:
    facts = facts_of(START, NET, code)
    (made,) = optimizers(facts)
    assert [f"{cst_nodes.code_of(f.model)} {f.where}" for f in named_models(facts, made)] == models


@pytest.mark.parametrize(
    "code",
    [
        "ema = Average(model.parameters())\nema.step(model.parameters())",
        "sum(p.numel() for p in model.parameters())",
        "optimizer.step()\nstudy.optimize(run)",
        f"{MAKE}trainer = SFTTrainer(m)\ntrainer.train()\ntorch.optim.Adam(model.parameters())",
    ],
)
def test_what_makes_no_optimizer_of_a_loop(code: str) -> None:
    assert optimizers(facts_of(START, NET, code)) == []


LOOP = "for x in loader:\n    model(x).backward()"
OF_FOLD = LOOP.replace("\n", "\n    ")


@pytest.mark.parametrize(
    ("code", "statements"),
    [
        (f"opt = torch.optim.SGD(model.parameters())\n{LOOP}\nprint(1)", ["for x in loader:"]),
        (
            f"for fold in folds:\n    opt = torch.optim.SGD(model.parameters())\n    {OF_FOLD}",
            ["for x in loader:"],
        ),
        (
            "for x in loader:\n    opt = torch.optim.SGD(model.parameters())\n    model(x).backward()",
            ["for x in loader:"],
        ),
        (
            "def make():\n    return torch.optim.SGD(model.parameters())\nopt = make()\n" + LOOP,
            ["for x in loader:"],
        ),
        (f"opt = torch.optim.SGD(model.parameters())\n{LOOP}\n{LOOP}", ["for x in loader:"] * 2),
        (
            "def epoch():\n    for x in loader:\n        model(x).backward()\n"
            "opt = torch.optim.SGD(model.parameters())\nfor e in range(3):\n    epoch()",
            ["for e in range(3):"],
        ),
    ],
)
def test_the_statements_that_train_with_an_optimizer(code: str, statements: list[str]) -> None:
    facts = facts_of(START, NET, code)
    (made,) = optimizers(facts)
    assert [cst_nodes.code_of(s).strip().partition("\n")[0] for s in trainings(facts, made)] == statements
