"""A `forward()` that changes more than its outputs: the calls that compare a batch with its parts leave no trace."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.support.ranks import RankServer
from tests.unit.runtime.conftest import START
from tests.unit.runtime.loop_tools import TOOLS
from tests.unit.runtime.test_parallelize import assert_as_one_process

SCRIPT = START + TOOLS
TRAIN = "train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))\nend(model)\n"

# Every call changes the same, whatever its rows: the ranks divide the batches.
DIVIDED = {
    "files are open that forward() does not name": """
        import io, tempfile
        file = tempfile.TemporaryFile("w+")
        def tell(text):
            file.write(text)
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.lines = io.StringIO()
            def forward(self, x):
                return self.double(self.body(x))
            def double(self, x):
                return 2 * x
            def save(self):
                tell("saved")
                self.lines.write("saved")
        model = ddp.parallelize(Net())
        model.save()
    """,
    "a parameter is averaged with another one's": """
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.slow = copy.deepcopy(self.body).requires_grad_(False)
            def forward(self, x):
                for slow, fast in zip(self.slow.parameters(), self.body.parameters()):
                    slow.data = slow.data * 0.9 + fast.data * 0.1
                return self.body(x) - 0.5 * self.slow(x)
        model = ddp.parallelize(Net())
    """,
    "a weight is scaled in place": """
        class Net(Body):
            def forward(self, x):
                self.body[0].weight.data.div_(self.body[0].weight.data.norm() / 2)
                return self.body(x)
        model = ddp.parallelize(Net())
    """,
    "a buffer is resized": """
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", torch.empty(0))
            def forward(self, x):
                if not self.seen.numel():
                    self.seen.resize_(3).zero_()
                self.seen += 1
                return self.body(x) / (1 + 0.1 * self.seen)
        model = ddp.parallelize(Net())
    """,
    "a global name counts": """
        calls = 0
        def temperature():
            global calls
            calls += 1
            return 1 + 0.1 * calls
        class Net(Body):
            def forward(self, x):
                return self.body(x) / temperature()
        model = ddp.parallelize(Net())
    """,
    "a class counts": """
        class Net(Body):
            calls = 0
            def forward(self, x):
                Net.calls += 1
                return self.body(x) / (1 + 0.1 * Net.calls)
        model = ddp.parallelize(Net())
    """,
    "an object deep in an attribute counts": """
        from types import SimpleNamespace
        class Counts:
            def __init__(self):
                self.inner = SimpleNamespace(calls=0)
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.state = {"of": [Counts()]}
            def forward(self, x):
                self.state["of"][0].inner.calls += 1
                return self.body(x) / (1 + 0.1 * self.state["of"][0].inner.calls)
        model = ddp.parallelize(Net())
    """,
    "Python's generator of its own": """
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.dice = random.Random(3)
            def forward(self, x):
                return self.body(x) * (0.5 + self.dice.random())
        model = ddp.parallelize(Net())
    """,
    "NumPy's generators of its own": """
        import numpy
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.dice, self.old = numpy.random.default_rng(3), numpy.random.Generator(numpy.random.MT19937(3))
            def forward(self, x):
                return self.body(x) * (0.5 + self.dice.random() + self.old.random())
        model = ddp.parallelize(Net())
    """,
    "a dict that makes a module of what is asked for": """
        from transformers.activations import ACT2FN
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.act = ACT2FN["gelu"]
            def forward(self, x):
                return self.act(self.body(x)) if "gelu" in ACT2FN else x
        model = ddp.parallelize(Net())
    """,
    "a module beside it is made in the first call, and a buffer registered anew": """
        made, helper = {}, nn.Linear(5, 5).requires_grad_(False)
        class Net(Body):
            def forward(self, x):
                if "mean" not in made:
                    made["mean"] = copy.deepcopy(helper)
                made["mean"].weight.mul_(0.9)
                helper.register_buffer("calls", getattr(helper, "calls", torch.zeros(1)) + 1)
                return self.body(made["mean"](helper(x)) / helper.calls)
        model = ddp.parallelize(Net())
    """,
    "what it makes once, with first weights that it draws, and later a head": """
        made = {}
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.heads, self.calls = nn.ModuleDict(), 0
            def forward(self, x):
                self.calls += 1
                if "mix" not in made:
                    made["mix"] = nn.Linear(5, 5).requires_grad_(False)
                if self.calls == 4:
                    self.heads["new"] = nn.Linear(3, 3)
                    optimizer.add_param_group({"params": list(self.heads.parameters())})
                x = self.body(made["mix"](x))
                return self.heads["new"](x) if self.heads else x
        model = ddp.parallelize(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y), optimizer)
        note(made=made["mix"].weight)
    """,
    "it grows": """
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.blocks, self.calls = nn.ModuleList([nn.Linear(5, 5)]), 0
            def forward(self, x):
                self.calls += 1
                if self.calls in (1, 3):
                    self.blocks.append(copy.deepcopy(self.blocks[-1]))
                    optimizer.add_param_group({"params": list(self.blocks[-1].parameters())})
                for block in self.blocks:
                    x = block(x)
                return self.body(x / len(optimizer.param_groups))
        model = ddp.parallelize(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y), optimizer)
        note(groups=len(optimizer.param_groups))
    """,
    "a container that is made otherwise": """
        import collections
        class Memory(collections.deque):
            def __init__(self, most):
                super().__init__(maxlen=most)
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.calls = Memory(4)
            def forward(self, x):
                self.calls.append(1.0)
                return self.body(x) / (1 + 0.1 * len(self.calls))
        model = ddp.parallelize(Net())
    """,
    "a time is measured": """
        import time
        times = {"forward": 0.0}
        class Net(Body):
            def forward(self, x):
                start = time.perf_counter()
                out = self.body(x)
                times["forward"] += time.perf_counter() - start
                return out
        model = ddp.parallelize(Net())
    """,
    "PyTorch's generator draws for each row": """
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.dice = torch.Generator().manual_seed(3)
            def forward(self, x):
                return self.body(x + torch.randn(x.shape, generator=self.dice))
        model = ddp.parallelize(Net())
    """,
}
# Values in places beside the modules: every call changes them alike.
DIVIDED |= {
    f"{place} counts": f"""
        class Counts:
            __slots__ = ("calls",)
            def __init__(self):
                self.calls = 0
        counts = Counts()
        def make():
            calls = 0
            def count():
                nonlocal calls
                calls += 1
                return calls
            def read():
                return calls
            return count, read
        count, read = make()
        def by_default(x, calls=[0]):
            calls[0] += 1
            return calls[0]
        def by_attribute(x):
            by_attribute.calls = getattr(by_attribute, "calls", 0) + 1
            return by_attribute.calls
        def by_slot(x):
            counts.calls += 1
            return counts.calls
        class Net(Body):
            def forward(self, x):
                return self.body(x) / (1 + 0.1 * {call})
        model = ddp.parallelize(Net())
    """
    for place, call in {
        "a variable of two closures": "(count() + read())",
        "a default value": "by_default(x)",
        "an attribute of a function": "by_attribute(x)",
        "a slot": "by_slot(x)",
    }.items()
}
DIVIDED["an optimizer of its own"] = """
    class Net(Body):
        def forward(self, x):
            with torch.enable_grad():
                moved = x.detach().clone().requires_grad_()
                inner = torch.optim.SGD([moved], lr=0.1)
                for _ in range(2):
                    inner.zero_grad()
                    (moved - 1).square().sum().backward()
                    inner.step()
                ddp.check_replicas()
            return self.body(moved.detach())
    model = ddp.parallelize(Net())
"""
# What a call leaves depends on its rows: every rank computes whole batches, and a warning names what holds it.
WHOLE = {
    "a parameter is replaced": """
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.centre = nn.Parameter(torch.zeros(3))
            def forward(self, x):
                out = self.body(x)
                self.centre = nn.Parameter(self.centre.data * 0.9 + out.detach().mean(0) * 0.1)
                return out + self.centre.data
        model = ddp.parallelize(Net())
    """,
    "a buffer is written through its data": """
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.register_buffer("mean", torch.zeros(5))
            def forward(self, x):
                self.mean.data.mul_(0.9).add_(0.1 * x.detach().mean(0))
                return self.body(x - self.mean)
        model = ddp.parallelize(Net())
    """,
    "figures are counted outside": """
        import collections
        figures = collections.Counter()
        class Net(Body):
            def forward(self, x):
                figures["rows"] += len(x)
                return self.body(x)
        model = ddp.parallelize(Net())
    """,
    "items of an iterator are taken": """
        weights = iter([0.5, 1.5] * 20)
        class Net(Body):
            def forward(self, x):
                return self.body(x) * next(weights)
        model = ddp.parallelize(Net())
    """,
    "lines are written to an open file": """
        import tempfile
        file = tempfile.TemporaryFile("w+")
        class Net(Body):
            def forward(self, x):
                file.write(f"{len(x)}\\n")
                return self.body(x)
        model = ddp.parallelize(Net())
    """,
    "the notebook's own code logs": """
        import logging
        logging.basicConfig(filename="own.log", level=logging.INFO)
        class Net(Body):
            def forward(self, x):
                logging.info("%d rows", len(x))
                return self.body(x)
        model = ddp.parallelize(Net())
    """,
    "a module beside the notebook logs": """
        import logging, pathlib, sys
        logging.basicConfig(filename="own.log", level=logging.INFO)
        with ddp.main_process_first():
            pathlib.Path("beside.py").write_text("import logging\\ndef tell(x):\\n    logging.info('%d', len(x))\\n")
        sys.path.insert(0, ".")
        import beside
        class Net(Body):
            def forward(self, x):
                beside.tell(x)
                return self.body(x)
        model = ddp.parallelize(Net())
    """,
    "a print and a log between a lock's two ends": """
        import logging, threading
        logging.basicConfig(filename="own.log", level=logging.INFO)
        one, other = threading.Lock(), threading.Lock()
        class Net(Body):
            def forward(self, x):
                for lock, say in ((one, print), (other, logging.info)):
                    lock.acquire()
                    say(f"{len(x)} rows")
                    lock.release()
                return self.body(x)
        model = ddp.parallelize(Net())
    """,
    "a library prints from its buffer": """
        import sys
        text = "class Console:\\n    lines = []\\n    def print(self, line):\\n        self.lines.append(line)\\n" + (
            "        print(*self.lines)\\n        self.lines.clear()\\n")
        console = {"__name__": "a_library"}
        exec(text, console)
        console = console["Console"]()
        class Net(Body):
            def forward(self, x):
                if self.training and x.max() > 1.5:
                    console.print(f"{len(x)} rows")
                    sys.stdout.writelines([f"{len(x)} rows\\n"])
                return self.body(x)
        model = ddp.parallelize(Net())
    """,
    "figures go to a tracker's run": """
        library = {"__name__": "a_library"}
        text = "class Run:\\n    rows = 0\\n    def log(self, rows):\\n        Run.rows += rows\\n" + (
            "    def __getitem__(self, name):\\n        return self.series(name)\\n    def series(self, name):\\n"
            "        return type('Series', (), {'append': staticmethod(self.log)})\\n")
        exec(text, library)
        run = ddp.on_main_process(library["Run"])()
        class figures:
            def __class_getitem__(of, name):
                return ddp.from_main_process(lambda: library["Run"].rows)
        class Net(Body):
            def forward(self, x):
                run.log(len(x))
                run["rows"].append(len(x))
                return self.body(x)
        model = ddp.parallelize(Net())
    """,
    "an optimizer steps": """
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.probe = nn.Linear(3, 3)
                self.of_probe = torch.optim.Adam(self.probe.parameters(), 0.1)
            def forward(self, x):
                out = self.body(x)
                with torch.enable_grad():
                    self.of_probe.zero_grad()
                    (self.probe(out.detach()) - x[:, :3]).square().mean().backward()
                    self.of_probe.step()
                return out + self.probe(out).detach()
        model = ddp.parallelize(Net())
        slow = torch.optim.SGD(model.body.parameters(), lr=0.1)
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y), slow)
    """,
    "backward() keeps gradients of rows": """
        class Seen(torch.autograd.Function):
            sums = []
            @staticmethod
            def forward(ctx, x):
                return x.clone()
            @staticmethod
            def backward(ctx, grad):
                Seen.sums.append(grad.abs().sum().item())
                return grad
        class Net(Body):
            def forward(self, x):
                return Seen.apply(self.body(x))
        model = ddp.parallelize(Net())
    """,
    "a closure counts rows": """
        def make():
            rows = 0
            def count(x):
                nonlocal rows
                rows += len(x)
                return 0.01 * rows
            return count
        count = make()
        class Net(Body):
            def forward(self, x):
                return self.body(x) + count(x)
        model = ddp.parallelize(Net())
    """,
    "Python's generator draws for each row": """
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.dice = random.Random(3)
            def forward(self, x):
                return self.body(x * torch.tensor([[self.dice.random()] for _ in x]))
        model = ddp.parallelize(Net())
    """,
}


# A neighbour shows much of the same; `make test-all` runs them.
SELDOM = (
    "a buffer is written through its data",
    "a class counts",
    "a closure counts rows",
    "a container that is made otherwise",
    "a dict that makes a module of what is asked for",
    "a global name counts",
    "a module beside the notebook logs",
    "a variable of two closures counts",
    "a weight is scaled in place",
    "an attribute of a function counts",
    "an object deep in an attribute counts",
    "items of an iterator are taken",
    "lines are written to an open file",
    "NumPy's generators of its own",
    "PyTorch's generator draws for each row",
)


def marked(cases: dict[str, str]) -> list[Any]:
    return [pytest.param(case, marks=pytest.mark.thorough if case in SELDOM else ()) for case in cases]


@pytest.mark.parametrize("case", marked(DIVIDED))
def test_the_same_whatever_the_rows(server: RankServer, tmp_path: Path, case: str) -> None:
    one, several = server.compare(tmp_path, f"{SCRIPT}{textwrap.dedent(DIVIDED[case])}{TRAIN}", 2)
    assert_as_one_process(one, several)
    assert "whole batches" not in several.ranks[0].err, several.text


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("case", marked(WHOLE))
def test_what_depends_on_the_rows(server: RankServer, tmp_path: Path, case: str, ranks: int) -> None:
    note = "note(figures=figures['rows'])\n" if "figures" in case else ""
    one, several = server.compare(tmp_path, f"{SCRIPT}{textwrap.dedent(WHOLE[case])}{TRAIN}{note}", ranks)
    assert_as_one_process(one, several)
    assert "every rank computes whole batches" in several.ranks[0].err, several.text
