"""The engine: what several findings about one cell come to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import libcst as cst
import pytest

from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.engine import Rewritten, rewrite, rewrite_first
from nb2ddp.rewriting.findings import (
    Change,
    Decline,
    Drop,
    Edit,
    Finding,
    Gate,
    GateKind,
    Insert,
    Need,
    Note,
    Rule,
)
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Place, Statement
from tests.support.helpers import facts_of

Find = Callable[[Facts], Iterator[Finding]]


def run(find: Find, *cells: str) -> Rewritten:
    facts = facts_of(*cells)
    result = rewrite(facts, [Rule("test", "", lambda facts, options: find(facts))], Options())
    for code in result.code.values():
        compile(code, "after", "exec")
    return result


def statement_with(facts: Facts, code: str) -> Statement:
    """The innermost statement that is ``code``, comments left out."""
    (found,) = {
        facts.statement(call)
        for call in facts.calls
        if cst_nodes.code_of(facts.statement(call).with_changes(leading_lines=())).strip().startswith(code)
    }
    return found


def on(code: str, make: Callable[[Statement], Finding]) -> Find:
    """A finding about every statement that starts like one of the parts of ``code``."""

    def find(facts: Facts) -> Iterator[Finding]:
        for part in code.split():
            yield make(statement_with(facts, part))

    return find


def gate(kind: GateKind = "rank-zero") -> Callable[[Statement], Finding]:
    return lambda statement: Gate(statement, kind, "why")


def drop(statement: Statement) -> Finding:
    return Drop(statement, "why")


def before(statement: Statement) -> Finding:
    return Insert(statement, "before", "new()", "why")


def after(statement: Statement) -> Finding:
    return Insert(statement, "after", "new()", "why")


@pytest.mark.parametrize(
    "source", ["", "\n", "x = 1", "# only\n", "if x:\n\ty = ( 1,\n2)\n# end\n", "a; b;\n"]
)
def test_nothing_found_changes_no_byte(source: str) -> None:
    result = run(lambda facts: iter(()), source)
    assert result.code == {1: source}
    assert not result.changes


def test_edits_of_nested_nodes_compose() -> None:
    def find(facts: Facts) -> Iterator[Finding]:
        for call in facts.calls:
            yield Edit(call, "why", partial(cst_nodes.wrapped, function="w"))

    assert run(find, "x = f(g(1), h)  # c\n").code[1] == "x = w(f(w(g(1)), h))  # c\n"


def test_edits_of_one_node_apply_in_the_order_of_the_rules() -> None:
    facts = facts_of("f(1)\n")

    def rule(name: str) -> Rule:
        def find(facts: Facts, options: Options) -> Iterator[Finding]:
            yield Edit(facts.calls[0], "why", partial(cst_nodes.wrapped, function=name))

        return Rule(name, "", find)

    result = rewrite(facts, [rule("a"), rule("b")], Options())
    assert result.code[1] == "b(a(f(1)))\n"
    assert [change.rule for change in result.changes] == ["a", "b"]


def test_an_edit_inside_a_statement_that_is_gated_and_moved() -> None:
    def find(facts: Facts) -> Iterator[Finding]:
        inner = facts.calls[-1]
        yield Edit(inner, "why", partial(cst_nodes.replaced, code="new"))
        yield Gate(facts.statement(inner), "rank-zero", "why")
        yield Insert(facts.statement(inner), "before", "first()", "why")

    assert run(find, "# c\nf(g())\n").code[1] == (
        "# c\nfirst()\nif ddp.is_main_process:  # nb2ddp: why\n    f(new)\n"
    )


@pytest.mark.parametrize(
    ("kind", "block", "deep"),
    [
        ("rank-zero", "if ddp.is_main_process:  # nb2ddp: why\n", ""),
        (
            "rank-zero-then-wait",
            "with ddp.main_process_only() as is_main:  # nb2ddp: why\n    if is_main:\n",
            "    ",
        ),
        ("main-first", "with ddp.main_process_first():  # nb2ddp: why\n", ""),
        ("in-turn", "with ddp.in_turn():  # nb2ddp: why\n", ""),
    ],
)
def test_neighbours_under_one_gate_share_its_block(kind: GateKind, block: str, deep: str) -> None:
    result = run(on("a b c", gate(kind)), "x = 1\na()\n# about b\nb()\nc()  # behind\ny = 2\n")
    assert result.code[1] == (
        f"x = 1\n{block}{deep}    a()\n{deep}    # about b\n{deep}    b()\n{deep}    c()  # behind\ny = 2\n"
    )
    assert [change.place for change in result.changes] == [Place(1, 2), Place(1, 4), Place(1, 5)]


def test_a_statement_between_parts_the_blocks() -> None:
    assert run(on("a b", gate()), "a()\nx = 1\nb()\n").code[1].count("if ddp.is_main_process:") == 2


def test_gates_of_two_kinds_are_two_blocks() -> None:
    def find(facts: Facts) -> Iterator[Finding]:
        yield Gate(statement_with(facts, "a"), "rank-zero", "why")
        yield Gate(statement_with(facts, "b"), "main-first", "why")

    assert run(find, "a()\nb()\n").code[1] == (
        "if ddp.is_main_process:  # nb2ddp: why\n    a()\nwith ddp.main_process_first():  # nb2ddp: why\n    b()\n"
    )


def test_what_is_put_between_parts_the_blocks() -> None:
    def find(facts: Facts) -> Iterator[Finding]:
        yield from on("a b", gate())(facts)
        yield before(statement_with(facts, "b"))

    assert run(find, "a()\nb()\n").code[1] == (
        "if ddp.is_main_process:  # nb2ddp: why\n    a()\nnew()\nif ddp.is_main_process:  # nb2ddp: why\n    b()\n"
    )


def test_a_second_gate_of_one_statement_is_no_second_block() -> None:
    result = run(on("a a", gate()), "a()\n")
    assert result.code[1] == "if ddp.is_main_process:  # nb2ddp: why\n    a()\n"
    assert len(result.changes) == 1


def test_a_gate_inside_a_gate_is_none() -> None:
    result = run(on("for a", gate()), "for x in y():\n    a()\n")
    assert result.code[1] == "if ddp.is_main_process:  # nb2ddp: why\n    for x in y():\n        a()\n"


def test_a_gate_inside_a_function_keeps_the_indent() -> None:
    result = run(on("a", gate()), "def f():\n  x = 1\n  a()\n  return x\n")
    assert result.code[1] == (
        "def f():\n  x = 1\n  if ddp.is_main_process:  # nb2ddp: why\n      a()\n  return x\n"
    )


def test_a_name_of_ours_that_is_taken() -> None:
    result = run(on("a", gate("rank-zero-then-wait")), "is_main = ddp = 1\na()\n")
    assert "with ddp_ddp.main_process_only() as ddp_is_main:" in result.code[1]
    assert "\n    if ddp_is_main:\n        a()\n" in result.code[1]


@pytest.mark.parametrize(
    ("make", "source", "expected"),
    [
        (before, "x = 1\n# about a\na()  # behind\n", "x = 1\n# about a\nnew()\na()  # behind\n"),
        (before, "# top\n\n# about a\na()\n", "# top\n\n# about a\nnew()\na()\n"),
        (before, "if x:\n\ta()\n", "if x:\n\tnew()\n\ta()\n"),
        (after, "a()  # behind\n# about y\ny = 1\n", "a()  # behind\nnew()\n# about y\ny = 1\n"),
        (after, "a()\n# the end\n", "a()\nnew()\n# the end\n"),
        (after, "a()", "a()\nnew()"),
        (after, "for x in y:\n  a()\nz = 1\n", "for x in y:\n  a()\n  new()\nz = 1\n"),
    ],
)
def test_inserts_leave_comments_where_they_belong(
    make: Callable[[Statement], Finding], source: str, expected: str
) -> None:
    assert run(on("a", make), source).code[1] == expected


def test_several_inserts_stand_in_their_order() -> None:
    def find(facts: Facts) -> Iterator[Finding]:
        for number in range(3):
            yield Insert(statement_with(facts, "a"), "before", f"f{number} = 1", "why")
            yield Insert(statement_with(facts, "a"), "after", f"g{number} = 1", "why")

    expected = "f0 = 1\nf1 = 1\nf2 = 1\na()\ng0 = 1\ng1 = 1\ng2 = 1\n"
    assert run(find, "a()\n").code[1] == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1\na()\ny = 2\n", "x = 1\ny = 2\n"),
        ("x = 1\n# about a\na()  # behind\ny = 2\n", "x = 1\n# about a\ny = 2\n"),
        ("x = 1\n# about a\na()\n", "x = 1\n# about a\n"),
        ("# top\na()\n# end\n", "# top\n# end\n"),
        ("a()\n", "\n"),
        ("if x:\n    a()\n", "if x:\n    pass\n"),
        ("if x:\n    # about a\n    a()\ny = 1\n", "if x:\n    pass\n    # about a\ny = 1\n"),
        ("if x:\n    a()\nelse:\n    y = 1\n", "if x:\n    pass\nelse:\n    y = 1\n"),
        ("if x:\n    # about a\n    a()\n    y = 1\n", "if x:\n    # about a\n    y = 1\n"),
    ],
)
def test_a_drop_keeps_comments_and_an_empty_block_passes(source: str, expected: str) -> None:
    assert run(on("a", drop), source).code[1] == expected


def test_a_drop_with_its_comments() -> None:
    def find(facts: Facts) -> Iterator[Finding]:
        yield Drop(statement_with(facts, "a"), "why", with_comments=True)

    assert run(find, "x = 1\n# about a\na()\n# about y\ny = 2\n").code[1] == "x = 1\n# about y\ny = 2\n"


def test_a_drop_among_gated_neighbours() -> None:
    def find(facts: Facts) -> Iterator[Finding]:
        yield from on("a b c", gate())(facts)
        yield drop(statement_with(facts, "b"))

    assert run(find, "a()\n# about b\nb()\nc()\n").code[1] == (
        "if ddp.is_main_process:  # nb2ddp: why\n    a()\n    # about b\n    c()\n"
    )


def test_only_the_cell_that_is_meant_changes() -> None:
    result = run(on("a", drop), "x = 1\n", "a()\ny = 2\n", "z = 3\n")
    assert result.code == {1: "x = 1\n", 2: "y = 2\n", 3: "z = 3\n"}


def test_changes_stand_in_the_order_of_the_notebook() -> None:
    def find(facts: Facts) -> Iterator[Finding]:
        for name in ("c", "a", "b"):
            yield before(statement_with(facts, name))

    result = run(find, "a()\nb()\n", "c()\n")
    assert [change.place for change in result.changes] == [Place(1, 1), Place(1, 2), Place(2, 1)]


def test_what_changes_no_code_is_kept_apart() -> None:
    def find(facts: Facts) -> Iterator[Finding]:
        yield Decline("cannot", facts.calls[0])
        yield Decline("at all")
        yield Note("careful", facts.calls[0])
        yield Need("loads_share", "True")

    result = run(find, "x = 1\na()\n")
    assert result.code == {1: "x = 1\na()\n"}
    assert [(c.rule, c.place, c.why) for c in result.declined] == [
        ("test", Place(1, 2), "cannot"),
        ("test", None, "at all"),
    ]
    assert [c.place for c in result.notes] == [Place(1, 2)]
    assert result.needs == {Need("loads_share", "True")}
    assert not result.changes


def test_a_string_over_several_lines_survives_a_gate() -> None:
    source = 'def f():\n    a("""\nfirst\n  second""")\n'
    assert run(on("a", gate()), source).code[1] == (
        'def f():\n    if ddp.is_main_process:  # nb2ddp: why\n        a("""\nfirst\n  second""")\n'
    )


def test_the_cells_own_trees_are_left_alone() -> None:
    facts = facts_of("f(1)\n")
    module = facts.cells[0].module

    def find(facts: Facts, options: Options) -> Iterator[Finding]:
        yield Edit(facts.calls[0], "why", lambda _: cst.Name("x"))

    rewrite(facts, [Rule("test", "", find)], Options())
    assert module.code == "f(1)\n"


def test_an_insert_beside_an_elif_is_refused_not_lost() -> None:
    def beside_elif(facts: Facts) -> Iterator[Finding]:
        first = cst.ensure_type(facts.top_statements[0], cst.If)
        yield Insert(cst.ensure_type(first.orelse, cst.If), "after", "done()", "why")

    with pytest.raises(ValueError, match="not a statement of a block"):
        run(beside_elif, "if a: pass\nelif b: pass\n")


def test_a_rule_that_is_applied_first_gives_the_others_its_code_and_the_notebooks_lines() -> None:
    facts = facts_of("x = 1\nf(\n  1)\ng()", "y = 1")

    def find(facts: Facts, options: Options) -> Iterator[Finding]:
        yield from (Insert(facts.statement(call), "before", "a()\nb()", "why") for call in facts.calls[:1])

    again, changes = rewrite_first(facts, Rule("test", "", find), Options())
    assert again.cells[0].python.text == "x = 1\na()\nb()\nf(\n  1)\ng()"
    assert again.cells[1] is facts.cells[1]
    places = {cst_nodes.code_of(call.func): again.place(call).line for call in again.calls}
    assert (places["f"], places["g"]) == (2, 4)
    assert changes == (Change("test", Place(1, 2), "why"),)
    result = rewrite(again, [], Options(), changes)
    assert result.changes == changes


def test_a_rule_that_finds_nothing_to_apply_first_leaves_the_facts() -> None:
    facts = facts_of("f()")
    rule = Rule("test", "", lambda facts, options: [Decline("why", facts.calls[0])])
    assert rewrite_first(facts, rule, Options()) == (facts, ())


def test_a_rule_of_training_asks_nothing_of_a_notebook_without_it() -> None:
    asked: list[Facts] = []

    def find(facts: Facts, options: Options) -> Iterator[Finding]:
        asked.append(facts)
        yield from ()

    loop = "for x in batches:\n    loss(x).backward()\n"
    untrained, trained = facts_of("x = 1"), facts_of(loop)
    for facts in (untrained, trained):
        rewrite(facts, [Rule("test", "", find, of_training=True)], Options())
    assert asked == [trained]
