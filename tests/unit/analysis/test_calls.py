"""Which functions of the notebook a call runs, and which calls run a function."""

from __future__ import annotations

import libcst as cst
import pytest

from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import LOAD, call_to

JOB = """\
class Job:
    def __init__(self, part=None):
        self.part = part
    def go(self):
        self.step()
        self.part.step()
    def step(self):
        pass
"""
MAKING = """\
import functools
def make():
    def one(x):
        pass
    return one
def two(x):
    pass
"""
STEPS = """\
def steps(model):
    yield model()
class Run:
    def steps(self):
        yield 1
def make():
    return steps(2)
"""
MINE = f"{JOB}class Mine(Job):\n    def step(self):\n        super().step()\n"


def name_of(facts: Facts, function: cst.FunctionDef) -> str:
    """Return the name of a function, that of a method with its class."""
    home = facts.scope(function)
    return (
        f"{home.name.value}.{function.name.value}" if isinstance(home, cst.ClassDef) else function.name.value
    )


@pytest.mark.parametrize(
    ("code", "call", "functions"),
    [
        ("def f(): pass\nf()", "f()", ["f"]),
        ("def f(): pass\nrows.map(f)", "rows.map", ["f"]),
        (f"{MINE}Mine()", "Mine()", ["Job.__init__"]),
        (f"{MINE}job = Mine()\njob.step()", "job.step", ["Mine.step"]),
        (f"{MINE}def make():\n    return Mine()\njob = make()\njob.go()", "job.go", ["Job.go"]),
        (MINE, "self.step", ["Job.step", "Mine.step"]),
        (MINE, "super().step", ["Job.step"]),
        (f"{MINE}Job(Mine())", "self.part.step", ["Mine.step"]),
        (f"{MINE}x.go()", "x.go", ["Job.go"]),
        (f"{MAKING}step = make()\nstep(1)", "step(1)", ["one"]),
        (f"{MAKING}self.part = make()\nself.part(1)", "self.part(1)", ["one"]),
        (f"{MAKING}steps = {{'a': make}}\nsteps['a']()", "steps['a']()", ["make"]),
        (f"{MAKING}step = functools.partial(make, 1)\nstep()", "step()", ["make"]),
        (f"{MAKING}jobs = [functools.partial(two, 1)]\nfor job in jobs:\n    job()", "job()", ["two"]),
        (f"{MAKING}for n, job in enumerate([two, make]):\n    job(1)", "job(1)", ["make", "two"]),
        (f"{MAKING}jobs = []\njobs.append(('a', two))\nfor n, job in jobs:\n    job(1)", "job(1)", ["two"]),
        (f"{MAKING}jobs = {{}}\njobs[n] = two\nfor n, job in jobs.items():\n    job(1)", "job(1)", ["two"]),
        (f"{MAKING}jobs = [two for n in x]\njobs.pop()(1)", "jobs.pop()(1)", ["two"]),
        (f"{MAKING}rows.map(functools.partial(two, 1))", "rows.map", ["two"]),
        (f"{STEPS}for x in steps(1):\n    pass", "steps(1)", ["steps"]),
        (f"{STEPS}run = steps(1)\nnext(run)", "next(run)", ["steps"]),
        (f"{STEPS}self.run = make()\nlist(self.run)", "list(self.run)", ["steps"]),
        (f"{STEPS}run = Run()\nlater = run.steps()\nnext(later)", "next(later)", ["Run.steps"]),
        (f"{STEPS}for run in [steps(1)]:\n    next(run)", "next(run)", ["steps"]),
        (f"{MAKING}if x:\n    step = make()\nelse:\n    step = two\nstep(1)", "step(1)", ["one", "two"]),
        (
            f"{MAKING}def run(two):\n    two(1)\nrun(make)",
            "two(1)",
            ["make"],
        ),  # the parameter hides a function
        (f"{JOB}def f(self): pass\nsetattr(Job, 'add', f)\nJob().add()", "Job().add()", ["f"]),
    ],
)
def test_what_a_call_runs(code: str, call: str, functions: list[str]) -> None:
    facts = facts_of(code)
    assert [name_of(facts, f) for f in facts.called_functions(call_to(facts, call))] == functions


@pytest.mark.parametrize(
    ("code", "call"),
    [
        (f"{JOB}class More:\n    def go(self): pass\nx.go()", "x.go"),  # two classes have one
        (f"{JOB}import lib\nlib.go()", "lib.go"),
        (f"{JOB}{LOAD}model.go()", "model.go"),
        (f"{JOB}from lib import Thing\nthing = Thing()\nthing.go()", "thing.go"),
        ("class Net:\n    def train(self): pass\nx.train()", "x.train"),  # as any model has
        ("f = load()\nf()", "f()"),
        (f"{MAKING}step = functools.partial(two, 1)", "functools.partial"),  # its result does
        (f"{STEPS}run = steps(1)", "steps(1)"),  # what goes through it does
        (f"{STEPS}for x in steps(1):\n    print(x)", "print(x)"),
        (f"{STEPS}values = list(steps(1))\nsum(values)", "sum(values)"),
    ],
)
def test_what_cannot_be_resolved_runs_nothing(code: str, call: str) -> None:
    facts = facts_of(code)
    assert not facts.called_functions(call_to(facts, call))


def test_the_callers_of_a_function_are_its_live_calls() -> None:
    facts = facts_of("def f(): pass\nf(1)\nif False:\n    f(2)\nrows.map(f)\n", "def g():\n    f(3)")
    function = facts.bindings("f")[0].node
    assert isinstance(function, cst.FunctionDef)
    assert [cst_nodes.code_of(call) for call in facts.callers(function)] == ["f(1)", "rows.map(f)", "f(3)"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("a = mark()\nb = a + 1\nuse(b)", True),
        ("def f(x):\n    return x + 1\nuse(f(mark()))", True),
        ("def f(x):\n    return x\nb = f(mark())\nuse(b if ready else 0)", True),
        ("class A:\n    def __init__(self):\n        self.x = mark()\na = A()\nuse(a.x)", True),
        ("class A:\n    @property\n    def x(self):\n        return mark()\nuse(A().x)", True),
        ("d = {'a': mark(), 'b': 1}\nuse(d['a'])", True),
        ("d = {'a': mark(), 'b': 1}\nuse(d['b'])", False),
        ("a, b = mark(), 1\nuse(b)", False),
        ("def f():\n    return mark(), 1\na, b = f()\nuse(a)", True),
        ("def f():\n    return mark(), 1\na, b = f()\nuse(b)", False),
        ("a = clean(mark())\nuse(a)", False),
        ("x = y\ny = x\nuse(x)", False),
    ],
)
def test_labels_flow_from_sources_to_a_value(code: str, expected: bool) -> None:
    facts = facts_of(code)

    def label(node: cst.CSTNode) -> bool | None:
        name = cst_nodes.code_of(node.func) if isinstance(node, cst.Call) else ""
        return {"mark": True, "clean": False}.get(name)

    assert facts.carries(call_to(facts, "use(").args[0].value, label) == expected
