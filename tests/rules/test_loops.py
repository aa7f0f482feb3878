"""A loop written by hand stays as it is; the models that it trains compute each rank's part of a batch."""

from __future__ import annotations

import pytest

from nb2ddp.rules.loops import rule
from tests.support.helpers import apply, check_rewritten

HEAD = (
    "import torch\n"
    "from torch import nn\n"
    "from torch.optim import AdamW\n"
    "from torch.utils.data import DataLoader\n"
    "from transformers import AutoModelForCausalLM\n"
    'llm = AutoModelForCausalLM.from_pretrained("m")\n'
    "loader = DataLoader(data, batch_size=8, shuffle=True)\n"
)
LOOP = "for batch in loader:\n    loss = llm(**batch).loss\n    loss.backward()\n    opt.step()\n"
EPOCHS = "for epoch in range(3):\n    for batch in loader:\n        llm(**batch).loss.backward()\n    print(epoch)\n"


def split(model: str = "llm", indent: int = 0) -> str:
    comment = "  # nb2ddp: each rank computes its part of every batch\n"
    return f"{' ' * indent}ddp.parallelize({model}){comment}"


TRAINED = (
    "ddp.parallelize_trained()"
    "  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train\n"
)


FINDING = HEAD.replace("llm = ", f"{TRAINED}llm = ")


def check_marked(source: str) -> None:
    """Check what is inserted: ``parallelize(model)`` at lines ``@model``, and ``check_replicas()`` at lines ``=``.

    Where no model is named, the run finds what trains.
    """
    before, after = "", ""
    for line in source.splitlines(keepends=True):
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if text.startswith(("@", "=")):
            after += split(text[1:], indent) if text[0] == "@" else f"{' ' * indent}ddp.check_replicas()\n"
        else:
            before += line
            after += line
    check_rewritten(rule, HEAD + before, (HEAD if "@" in source else FINDING) + after)


# ---- what an optimizer is given -----------------------------------------------------------------

# How an optimizer is made, the last line of which is the statement that makes it.
OPTIMIZERS = {
    "directly": "opt = AdamW(llm.parameters(), lr=1e-4)\n",
    "another class": "opt = torch.optim.SGD(params=llm.parameters(), lr=1e-4)\n",
    "a class by its name": 'opt = getattr(torch.optim, "Adam")(llm.parameters())\n',
    "a class in a variable": "optimizer_class = AdamW\nopt = optimizer_class(llm.parameters())\n",
    "a list": "opt = AdamW([p for p in llm.parameters() if p.requires_grad])\n",
    "a filter": "opt = AdamW(filter(lambda p: p.requires_grad, llm.parameters()))\n",
    "beside a frozen model": (
        "ref = AutoModelForCausalLM.from_pretrained('r')\nfor p in ref.parameters():\n    p.requires_grad = False\n"
        "opt = AdamW([p for p in llm.parameters()])\n"
    ),
}
# The model has no name there.
HIDDEN = {
    "a variable": "params = list(llm.parameters())\nopt = AdamW(params)\n",
    "variables": "named = list(llm.named_parameters())\nparams = [p for n, p in named]\nopt = AdamW(params)\n",
    "a head": "opt = AdamW(llm.lm_head.parameters())\n",
    "a layer": "opt = AdamW(llm.layers[0].parameters())\n",
    "groups": "opt = AdamW([{'params': llm.a.parameters()}, {'params': llm.b.parameters(), 'lr': 1}])\n",
    "a list that grows": (
        "params = []\nparams += llm.a.parameters()\nparams.extend(llm.b.parameters())\nopt = AdamW(params)\n"
    ),
    "groups of a loop": (
        "groups = []\nfor name, p in llm.named_parameters():\n    groups.append({'params': [p]})\nopt = AdamW(groups)\n"
    ),
    "a function": "def groups_of(net):\n    return [*net.parameters()]\nopt = AdamW(groups_of(llm))\n",
    "a function, by keyword": (
        "def groups_of(lr, net):\n    return [*net.parameters()]\nopt = AdamW(groups_of(net=llm, lr=1))\n"
    ),
}


@pytest.mark.parametrize("made", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_the_model_whose_parameters_an_optimizer_gets_is_divided(made: str) -> None:
    check_marked(f"{made}@llm\n{LOOP}=\n")


@pytest.mark.parametrize("made", HIDDEN.values(), ids=HIDDEN)
def test_what_has_no_name_is_found_by_the_run(made: str) -> None:
    check_marked(f"{made}{LOOP}=\n")


def test_an_optimizer_that_a_function_returns_is_no_end_of_it() -> None:
    before = "def optimizer_of(net):\n{}    return AdamW(net.parameters())\nopt = optimizer_of(llm)\n" + LOOP
    after = FINDING + before.format(split("net", 4)) + "ddp.check_replicas()\n"
    check_rewritten(rule, HEAD + before.format(""), after)


def test_the_name_of_the_runtime_is_not_taken() -> None:
    result = apply(rule, HEAD + "ddp = 1\nopt = AdamW(llm.parameters())\n" + LOOP)
    assert "ddp_ddp.parallelize(llm)" in result.code[1]
    assert "ddp_ddp.check_replicas()" in result.code[1]


# ---- loops, wherever they stand -----------------------------------------------------------------

# `@model`: parallelize(model) is inserted here; `=`: check_replicas().
NETS = "class Net(nn.Module):\n    pass\n"
FITTER = """\
class Fitter:
    def __init__(self, model):
        self.model = model
        self.opt = AdamW(self.model.parameters())
        @self.model
    def fit(self, loader):
        for epoch in range(3):
            for batch in loader:
                self.step(batch)
    def step(self, batch):
        self.model(**batch).loss.backward()
Fitter(llm).fit(loader)
=
"""
PLACES = {
    "epochs": f"opt = AdamW(llm.parameters())\n@llm\n{EPOCHS}=\n",
    "two loops": f"opt = AdamW(llm.parameters())\n@llm\n{LOOP}=\n{EPOCHS}=\n",
    "while": (
        "opt = AdamW(llm.parameters())\n@llm\nwhile step < 9:\n    llm(**batch).loss.backward()\n    step += 1\n=\n"
    ),
    "in an if": (
        "opt = AdamW(llm.parameters())\n@llm\nif train:\n    for b in loader:\n        llm(b).backward()\n=\n"
    ),
    "a step in a function": (
        "opt = AdamW(llm.parameters())\n@llm\ndef step(batch):\n    llm(**batch).loss.backward()\n"
        "for epoch in range(3):\n    for batch in loader:\n        step(batch)\n=\n"
    ),
    "a function that is given the model": (
        "opt = AdamW(llm.parameters())\n@llm\ndef train(net, batches):\n    for batch in batches:\n"
        "        net(**batch).loss.backward()\n    return net\nfor epoch in range(3):\n    train(llm, loader)\n=\n"
    ),
    "a function that makes the optimizer": (
        "def train(net, batches):\n    opt = AdamW(net.parameters())\n    @net\n    for batch in batches:\n"
        "        net(**batch).loss.backward()\n    =\n    return net\ntrain(llm, loader)\n"
    ),
    "a generator": (
        "opt = AdamW(llm.parameters())\n@llm\ndef losses():\n    for batch in loader:\n"
        "        loss = llm(**batch).loss\n        loss.backward()\n        yield loss\n"
        "for loss in losses():\n    print(loss)\n=\n"
    ),
    "main()": (
        "def epoch(net, opt):\n    for batch in loader:\n        net(**batch).loss.backward()\n"
        "def main():\n    net = AutoModelForCausalLM.from_pretrained('m')\n"
        "    opt = AdamW(net.parameters())\n    @net\n"
        "    for i in range(3):\n        epoch(net, opt)\n    =\nif __name__ == '__main__':\n    main()\n"
    ),
    "a class": FITTER,
    "a class that is derived": (
        "class Base:\n    def fit(self):\n        for batch in loader:\n            self.step(batch)\n"
        "class Fitter(Base):\n    def __init__(self, model):\n        self.model = model\n"
        "        self.opt = AdamW(self.model.parameters())\n        @self.model\n"
        "    def step(self, batch):\n        self.model(**batch).loss.backward()\n"
        "fitter = Fitter(llm)\nfitter.fit()\n=\n"
    ),
    "a class whose optimizer gets what it was given": (
        "class Fitter:\n    def __init__(self, lr, model):\n        self.model = model\n"
        "        self.opt = AdamW(model.parameters(), lr=lr)\n        @model\n"
        "    def fit(self):\n        for batch in loader:\n            self.model(**batch).loss.backward()\n"
        "fitter = Fitter(1, llm)\nfitter.fit()\n=\n"
    ),
    "a class that is given the optimizer": (
        "class Fitter:\n    def __init__(self, model, opt):\n        self.model = model\n    def fit(self):\n"
        "        for batch in loader:\n            self.model(**batch).loss.backward()\n"
        "opt = AdamW(llm.parameters())\n@llm\nfitter = Fitter(llm, opt)\nfitter.fit()\n=\n"
    ),
    "a model of an instance": (
        "class Agent:\n    def __init__(self):\n        self.policy = Net()\n    def learn(self):\n"
        "        for batch in loader:\n            self.policy(batch).backward()\n"
        "agent = Agent()\nopt = AdamW(agent.policy.parameters())\nagent.learn()\n=\n"
    ),
    "two models": (
        f"{NETS}gen = Net()\ncritic = Net()\nopt_g = AdamW(gen.parameters())\n@gen\n"
        "opt_c = AdamW(critic.parameters())\n@critic\nfor batch in loader:\n    critic(gen(batch)).backward()\n"
        "    opt_c.step()\n    critic(gen(batch)).backward()\n    opt_g.step()\n=\n"
    ),
    "two models of one optimizer": (
        f"{NETS}one = Net()\ntwo = Net()\nopt = AdamW([*one.parameters(), *two.parameters()])\n@one\n@two\n"
        "for batch in loader:\n    two(one(batch)).backward()\n=\n"
    ),
    "one model after another": (
        f"opt = AdamW(llm.parameters())\n@llm\n{LOOP}=\ndel llm, opt\n{NETS}net = Net()\n"
        "opt = AdamW(net.parameters())\n@net\nfor batch in loader:\n    net(batch).backward()\n=\n"
    ),
    "models in a dict": (
        f"{NETS}nets = {{'a': Net()}}\nopt = AdamW(nets['a'].parameters())\n"
        "for batch in loader:\n    nets['a'](batch).backward()\n=\n"
    ),
    "folds": (
        f"{NETS}for fold in range(5):\n    net = Net()\n    opt = AdamW(net.parameters())\n    @net\n"
        "    for epoch in range(3):\n        for batch in loader:\n"
        "            net(batch).backward()\n    =\n    del net\n"
    ),
    "folds of one model": (
        "opt = AdamW(llm.parameters())\n@llm\nfor fold in range(5):\n    for batch in loader:\n"
        "        llm(**batch).loss.backward()\n=\n"
    ),
    "folds through a function": (
        f"{NETS}def train(net):\n    opt = AdamW(net.parameters())\n    @net\n    for batch in loader:\n"
        "        net(batch).backward()\n    =\nfor fold in range(5):\n    train(Net())\n"
    ),
    "what a function returns": (
        "def epoch(net):\n    for batch in loader:\n        net(**batch).loss.backward()\n    return 1\n"
        "def main(net):\n    opt = AdamW(net.parameters())\n    @net\n    epoch(net)\n    =\n"
        "    print(1)\nmain(llm)\n"
    ),
    "no optimizer that can be seen": f"opt = make(llm)\n{EPOCHS}=\n",
    "no optimizer, and folds": (
        f"{NETS}for fold in range(5):\n    net = Net()\n    for batch in loader:\n"
        "        net(batch).backward()\n=\n"
    ),
}


@pytest.mark.parametrize("source", PLACES.values(), ids=PLACES)
def test_a_loop_stays_and_its_models_are_divided_and_compared(source: str) -> None:
    check_marked(source)


def test_what_a_function_returns_of_its_training_is_returned_after_the_comparison() -> None:
    before = (
        "def epoch(net):\n    for batch in loader:\n        net(**batch).loss.backward()\n    return 1\n"
        "def main(net):\n    opt = AdamW(net.parameters())\n{}    return {}\nmain(llm)\n"
    )
    after = before.format(split("net", 4), "ddp.check_replicas(result=epoch(net))")
    check_rewritten(rule, HEAD + before.format("", "epoch(net)"), HEAD + after)
