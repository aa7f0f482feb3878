"""What the converter knows of a notebook: names, values, places, and what the run needs."""

from __future__ import annotations

import libcst as cst
import pytest

from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Place
from tests.support.helpers import facts_of


def use(facts: Facts, name: str) -> cst.Name:
    """The last place that reads ``name``."""
    return [node for cell in facts.cells for node in facts.uses(name, cell.module)][-1]


def bound(facts: Facts, name: str) -> str | None:
    """The value that the last use of a name sees, as code."""
    binding = facts.binding(use(facts, name))
    return None if binding is None or binding.value is None else cst_nodes.code_of(binding.value)


def kind(facts: Facts, name: str = "it") -> str:
    return facts.kind(use(facts, name))


def call_to(facts: Facts, code: str) -> cst.Call:
    (found,) = [call for call in facts.calls if cst_nodes.code_of(call).startswith(code)]
    return found


# ---- bindings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "value"),
    [
        (["x = 1", "x = 2", "use(x)", "x = 3"], "2"),
        (["x = 1\nuse(x)\nx = 2"], "1"),
        (["x = 1\nx = use(x)"], "1"),
        (["use(x)\nx = 1"], None),
        (["a, x = 1, 2\nuse(x)"], "2"),
        (["(a, [b, x]) = f()\nuse(x)"], "f()"),
        (["x: int = 1\nuse(x)"], "1"),
        (["y = x = 1\nuse(x)"], "1"),
        (["if (x := 1):\n    use(x)"], "1"),
        (["with f() as x:\n    use(x)"], "f()"),
        (["x = 1\nif False:\n    x = 2\nuse(x)"], "1"),
        (["x = 1\nif flag:\n    x = 2\nuse(x)"], "2"),
        (["x = 1\ndef f():\n    x = 2\nuse(x)"], "1"),
        (["x = 1\ndef f():\n    x = 2\n    use(x)"], "2"),
        (["x = 1\ndef f(x):\n    use(x)"], None),
        (["x = 1\ndef f():\n    global x\n    x = 2\nuse(x)"], "2"),
        (["def f():\n    use(x)", "x = 1", "x = 2"], "2"),
        (["x = 1\nclass A:\n    x = 2\n    def f(self):\n        use(x)"], "1"),
        (["x = 1\nclass A:\n    x = 2\n    use(x)"], "2"),
        (["def f():\n    x = 1\n    def g():\n        use(x)"], "1"),
        (["x = 1\nf = lambda x: use(x)"], None),
        (["x = 1\nf = lambda y: use(x)"], "1"),
    ],
)
def test_a_use_sees_the_binding_that_a_notebook_has_there(cells: list[str], value: str | None) -> None:
    assert bound(facts_of(*cells), "x") == value


def test_names_that_are_read_and_names_that_are_bound() -> None:
    facts = facts_of("import a.b as c\nfrom d import e\nx.y = f(k=z)\nimport g.h\nfor i in j: pass\n")
    assert facts.bound_names == {"c", "e", "g", "i"}
    assert facts.loaded_names == {"x", "f", "z", "j"}


# ---- qualified names ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("imports", "expression", "name"),
    [
        ("from unsloth import FastModel", "FastModel.from_pretrained", "unsloth.FastModel.from_pretrained"),
        ("from unsloth import FastModel as F", "F.from_pretrained", "unsloth.FastModel.from_pretrained"),
        ("import unsloth", "unsloth.FastModel", "unsloth.FastModel"),
        ("import unsloth as us", "us.FastModel.get_peft_model", "unsloth.FastModel.get_peft_model"),
        ("import torch.distributed as dist", "dist.init", "torch.distributed.init"),
        ("import torch.distributed", "torch.distributed.init", "torch.distributed.init"),
        ("from unsloth import *", "FastLanguageModel", "unsloth.FastLanguageModel"),
        ("from unsloth import *\nFastLanguageModel = 1", "FastLanguageModel", "FastLanguageModel"),
        ("from unsloth import *", "something_else", "something_else"),
        ("", "print", "print"),
        ("", "f().x", ""),
        ("from .here import f", "f", ".here.f"),
    ],
)
def test_a_name_stands_for_what_was_imported(imports: str, expression: str, name: str) -> None:
    facts = facts_of(f"{imports}\nit = {expression}\n")
    assert facts.qualified(facts.bindings("it")[0].value or cst.Name("missing")) == name


# ---- what a value is ----------------------------------------------------------------------------

LOAD = "from unsloth import FastLanguageModel as F\nmodel, tokenizer = F.from_pretrained('m')\n"
MAKE = "from trl import SFTTrainer, SFTConfig\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"{LOAD}it = model", "model"),
        (f"{LOAD}it = tokenizer", ""),
        (f"{LOAD}it = F.get_peft_model(model, r=8)", "model"),
        (f"{LOAD}it = model.to('cuda')", "model"),
        ("import unsloth as us\nit, t = us.FastModel.from_pretrained('m')", "model"),
        ("from unsloth import *\nit, t = FastLanguageModel.from_pretrained('m')", "model"),
        ("from transformers import AutoTokenizer\nit = AutoTokenizer.from_pretrained('m')", ""),
        ("import torch\nclass Net(torch.nn.Module): pass\nit = Net()", "model"),
        (f"{MAKE}it = SFTTrainer(model=m)", "trainer"),
        (f"{MAKE}it = SFTTrainer(model=m).model", "model"),
        (f"{MAKE}it = SFTTrainer(model=m).args", "arguments"),
        (f"{MAKE}it = SFTConfig(seed=1)", "arguments"),
        (f"{MAKE}a = SFTConfig(seed=1)\nb = a\nit = b", "arguments"),
        (f"{MAKE}it = SFTConfig(a=1) if x else SFTConfig(a=2)", "arguments"),
        (f"{MAKE}it = None if x else SFTTrainer(model=m)", "trainer"),
        (f"{MAKE}def make():\n    return SFTTrainer(model=m)\nit = make()", "trainer"),
        (f"{MAKE}class Mine(SFTTrainer): pass\nclass More(Mine): pass\nit = More()", "trainer"),
        (f"{MAKE}class SFTTrainer(SFTTrainer): pass\nit = SFTTrainer()", "trainer"),
        (
            f"{MAKE}from unsloth.chat_templates import train_on_responses_only as only\nt = SFTTrainer(m)\n"
            "it = only(t, instruction_part='a')",
            "trainer",
        ),
        ("from transformers import LlamaConfig\nit = LlamaConfig()", ""),
        ("from trl import ModelConfig\nit = ModelConfig()", ""),
        ("from mine import SFTTrainer\nit = SFTTrainer()", ""),
        ("from datasets import load_dataset\nit = load_dataset('a', split='b')", "dataset"),
        ("from datasets import load_dataset\nit = load_dataset('a')['train'].map(f).shuffle()", "dataset"),
        ("import datasets\nit = datasets.Dataset.from_dict(x)", "dataset"),
        ("from torch.utils.data import DataLoader\nit = DataLoader(x)", "loader"),
        ("it = 'text'", ""),
        ("it = it2 = it", ""),
        ("def f():\n    return f()\nit = f()", ""),
        ("x = y\ny = x\nit = y", ""),
    ],
)
def test_what_a_variable_holds(code: str, expected: str) -> None:
    assert kind(facts_of(*code.split("\n\n"), "use(it)")) == expected


def test_a_variable_holds_what_the_last_cell_gave_it() -> None:
    facts = facts_of("model = 'a name'", f"{LOAD}use(model)", "model = 1")
    assert kind(facts, "model") == "model"


# ---- the run ------------------------------------------------------------------------------------

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


@pytest.mark.parametrize(
    ("code", "dead"),
    [
        ("if False:\n    it()", True),
        ("if 0:\n    it()", True),
        ("if None:\n    it()", True),
        ("if False: it()", True),
        ("if False:\n    pass\nelse:\n    it()", False),
        ("if True:\n    it()", False),
        ("if x:\n    it()", False),
        ("if False:\n    if x:\n        it()", True),
        ("def f():\n    if False:\n        it()", True),
        ("it()", False),
    ],
)
def test_dead_code(code: str, dead: bool) -> None:
    facts = facts_of(code)
    assert facts.is_dead(call_to(facts, "it")) == dead
    assert (call_to(facts, "it") in facts.live_calls) != dead


def test_a_function_runs_what_it_calls() -> None:
    facts = facts_of(
        "def a():\n    b()\ndef b():\n    it()\n", "a()", "x.map(a)", "y = 1", "def c():\n    it()\n"
    )

    def wanted(call: cst.Call) -> bool:
        return cst_nodes.code_of(call) == "it()"

    assert [facts.runs(s, wanted) for s in facts.top_statements] == [False, False, True, True, False, False]


# ---- reads outside ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "rest", "read"),
    [
        ("x = 1", ["print(x)"], True),
        ("x = 1", ["y = 2"], False),
        ("x = 1", ["x = 2\nprint(x)"], False),
        ("x = 1", ["x += 1"], True),
        ("x = 1", ["if y:\n    x = 2\nprint(x)"], True),
        ("x = 1", ["x = f(x)"], True),
        ("x = 1", ["def f():\n    return x"], True),
        ("x = 1", ["def f():\n    x = 2\n    return x"], False),
        ("x = 1", ["def f(x):\n    return x"], False),
        ("x = 1", ["print(a.x, f(x=2))"], False),
        ("import x", ["x.f()"], True),
        ("import x", ["import x\nx.f()"], False),
        ("x = 1", ["print(f'{x}')"], True),
    ],
)
def test_whether_a_value_is_read_elsewhere(first: str, rest: list[str], read: bool) -> None:
    facts = facts_of(first, *rest)
    assert facts.is_read_outside("x", facts.top_statements[0]) == read


def test_what_is_read_behind_the_limit_does_not_count() -> None:
    facts = facts_of("x = 1", "y = 2", "print(x)")
    first, second, third = facts.top_statements
    assert not facts.is_read_outside("x", first, until=second)
    assert facts.is_read_outside("x", first, until=third)


# ---- places -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("it()", 1),
        ("\n\nit()", 3),
        ("# above\n\nit()  # behind", 3),
        ("!pip install a \\\n  b\nit()", 3),
        ("%%capture\nit()", 2),
        ("#@title\n%%capture\n!ls\n\nit()", 5),
        ("x = 1; it()", 1),
        ("x = 1; model.save_pretrained('a')\nit()", 2),
        ("f(\n  a,\n  it(),\n)", 3),
        ('x = """\n\n"""\nit()', 4),
        ("if x:\n    y = 1\n\n    it()", 4),
        ("    x = 1\n    it()", 2),
    ],
)
def test_a_place_is_the_line_that_the_user_typed(cell: str, line: int) -> None:
    facts = facts_of("x = 1", cell)
    assert facts.place(call_to(facts, "it(")) == Place(2, line)


def test_statements_around_a_call() -> None:
    facts = facts_of("for x in y:\n    if x:\n        a = it()  # c\n    b = 1\n")
    call = call_to(facts, "it")
    assert cst_nodes.code_of(facts.statement(call)).strip() == "a = it()  # c"
    assert facts.top_statement(call) is facts.top_statements[0]
    assert facts.cell(call) is facts.cells[0]


def test_a_line_of_several_statements_is_one() -> None:
    facts = facts_of("if x: a(); b()\n")
    assert isinstance(facts.statement(call_to(facts, "b")), cst.If)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("rank = 1", "ddp_rank"),
        ("from a import rank", "ddp_rank"),
        ("x.rank = f(rank=1)", "rank"),
        ("", "rank"),
    ],
)
def test_a_name_of_ours(code: str, name: str) -> None:
    assert facts_of(code).our("rank") == name


@pytest.mark.parametrize(
    ("code", "name"),
    [("import torch", "torch"), ("torch = 1", "ddp_torch"), ("import fake as torch", "ddp_torch")],
)
def test_an_import_that_is_ours_too(code: str, name: str) -> None:
    assert facts_of(code).our("torch") == name
