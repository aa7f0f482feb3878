"""Names: what a use sees, what was imported, what is read elsewhere."""

from __future__ import annotations

import libcst as cst
import pytest

from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import last_use


def bound(facts: Facts, name: str) -> str | None:
    """Return the value that the last use of a name sees, as code."""
    binding = facts.binding(last_use(facts, name))
    return None if binding is None or binding.value is None else cst_nodes.code_of(binding.value)


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
        (["x = 1", "import x\nuse(x)"], None),
        (["import x", "x = 1\nuse(x)"], "1"),
        (["x = 1", "if flag:\n    import x\nuse(x)"], None),
        (["x = 1", "if False:\n    import x\nuse(x)"], "1"),
        (["x = 1", "def f():\n    import x\n    use(x)"], None),
        (["try:\n    import x\nexcept ImportError:\n    x = 1", "use(x)"], "1"),
        (["x = 1", "def f():\n    import x\nuse(x)"], "1"),
        (["x = 1", "import x", "def f():\n    use(x)"], None),
        (["import x", "x = 1\ndef f():\n    use(x)\nf()", "import x"], "1"),
    ],
)
def test_a_use_sees_the_binding_that_a_notebook_has_there(cells: list[str], value: str | None) -> None:
    assert bound(facts_of(*cells), "x") == value


def test_names_that_are_read_and_names_that_are_bound() -> None:
    facts = facts_of("import a.b as c\nfrom d import e\nx.y = f(k=z)\nimport g.h\nfor i in j: pass\n")
    assert facts.bound_names == {"c", "e", "g", "i"}
    assert facts.loaded_names == {"x", "f", "z", "j"}


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


def test_a_class_of_the_notebook_is_not_what_a_later_cell_imports() -> None:
    facts = facts_of("class Net: pass\nNet()", "from lib import Net\nNet()")
    assert [facts.qualified(call.func) for call in facts.live_calls] == ["Net", "lib.Net"]


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


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("!git clone {url} $folder/{name[0]}", {"url", "folder", "name"}),
        ("%env A={a}", {"a"}),
        ("%cd {root}", {"root"}),
        ("lines = !cat {path}", {"path"}),
        ("%%writefile {path}\n{body}", {"path"}),
        ("!echo {[x for x in rows]}", {"rows"}),
        ("!awk '{print $1}' {path}", set()),
        ("!ls", set()),
    ],
)
def test_names_that_ipython_reads_as_it_expands_a_line(line: str, names: set[str]) -> None:
    assert facts_of(line).loaded_names - {"get_ipython"} == names


def test_a_line_of_ipython_reads_what_the_last_binding_gave() -> None:
    facts = facts_of("x = 1\nx = 2\n!echo {x}", "x = 3")
    assert bound(facts, "x") == "2"
    first, second, third = facts.top_statements[:2] + facts.top_statements[-1:]
    assert [facts.is_read_outside("x", line) for line in (first, second, third)] == [False, True, False]
