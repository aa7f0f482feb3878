"""What a hand-written loop trains, and where its batches come from."""

from __future__ import annotations

import pytest

from nb2ddp.analysis.training_loops import loader_of, optimized_models, without_gradients
from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import MAKE, call_to

START = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\nfrom tqdm import tqdm\n"
NET = "class Net(nn.Module):\n    pass\nmodel, other = Net(), Net()\n"
FITTER = (
    "class Fitter:\n    def __init__(self, net):\n        self.net = net\n"
    "        self.optimizer = torch.optim.Adam(self.net.head.parameters())\n"
)


@pytest.mark.parametrize(
    ("code", "models"),
    [
        ("torch.optim.Adam(model.parameters())", ["model"]),
        ("torch.optim.Adam(model.head.parameters())", ["model"]),
        (FITTER, ["self.net"]),
        (
            "params = list(model.parameters())\nparams += other.parameters()\ntorch.optim.Adam(params)",
            ["other", "model"],
        ),
        (
            "def groups(net):\n    return [{'params': net.parameters()}]\ntorch.optim.Adam(groups(model))",
            ["model"],
        ),
        ("solver = make(model.parameters())\nsolver.step()", ["model"]),
        ("torch.optim.Adam([p for layer in model.layers for p in layer.parameters()])", ["model"]),
        ("ema = Average(model.parameters())\nema.step(model.parameters())", []),
        ("sum(p.numel() for p in model.parameters())", []),
        ("torch.optim.Adam(params)", []),
        (f"{MAKE}trainer = SFTTrainer(m)\ntrainer.train()\ntorch.optim.Adam(model.parameters())", []),
    ],
)
def test_what_an_optimizer_trains(code: str, models: list[str]) -> None:
    found = list(optimized_models(facts_of(START, NET, code)))
    assert [(cst_nodes.code_of(f.model), f.each) for f in found] == [(model, "") for model in models]


@pytest.mark.parametrize(
    ("models", "each", "once"),
    [
        ("[Net(), Net()]", "for net in models", False),
        ("map(Net, sizes)", "for net in models", True),
    ],
)
def test_an_optimizer_of_several_models(models: str, each: str, once: bool) -> None:
    code = f"models = {models}\ntorch.optim.Adam([p for net in models for p in net.parameters()])"
    (found,) = optimized_models(facts_of(START, NET, code))
    assert (cst_nodes.code_of(found.model), found.each, found.once) == ("net", each, once)
    assert found.models is not None
    assert cst_nodes.code_of(found.models) == "models"
    assert cst_nodes.code_of(found.statement).startswith("torch.optim.Adam")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("for batch in loader:\n    use(batch)", True),
        ("with torch.no_grad():\n    for batch in loader:\n        use(batch)", True),  # around the loop
        ("for batch in loader:\n    with torch.no_grad():\n        use(batch)", False),
    ],
)
def test_whether_a_call_of_a_loop_makes_gradients(code: str, expected: bool) -> None:
    facts = facts_of(START, code)
    assert without_gradients(facts, call_to(facts, "use("), facts.loops[0]) != expected


MAKES = "def make():\n    train = DataLoader(a)\n    test = DataLoader(b)\n    return train, test\n"


@pytest.mark.parametrize(
    ("code", "loader"),
    [
        ("for batch in DataLoader(a): pass", "DataLoader(a)"),
        ("loader = DataLoader(a)\nfor n, batch in enumerate(tqdm(loader)): pass", "DataLoader(a)"),
        (f"{MAKES}train, test = make()\nfor batch in test: pass", "DataLoader(b)"),
        ("def run(loader):\n    for batch in loader: pass\nrun(DataLoader(a))", "loader"),
        (
            "from accelerate import Accelerator\naccelerator = Accelerator()\nloader = DataLoader(a)\n"
            "for batch in loader: pass",
            "loader",
        ),
        ("for batch in sorted(DataLoader(a)): pass", None),
        ("for batch in rows: pass", None),
        ("while True:\n    next(loader)", None),
    ],
)
def test_where_the_batches_of_a_loop_come_from(code: str, loader: str | None) -> None:
    facts = facts_of(START, code)
    found = loader_of(facts, facts.loops[-1])
    assert (None if found is None else cst_nodes.code_of(found)) == loader
