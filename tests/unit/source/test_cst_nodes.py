"""Node surgery: exact text before and after, and Python still reads it."""

from __future__ import annotations

import libcst as cst
import pytest

from nb2ddp.source import cst_nodes


def call_of(code: str) -> cst.Call:
    node = cst.parse_expression(code)
    assert isinstance(node, cst.Call)
    return node


def dict_of(code: str) -> cst.Dict:
    node = cst.parse_expression(code)
    assert isinstance(node, cst.Dict)
    return node


def check(node: cst.CSTNode, expected: str) -> None:
    code = node.code if isinstance(node, cst.Module) else cst_nodes.code_of(node)
    assert code == expected
    compile(code, "after", "exec")


WITH_KEYWORD = {
    "empty call": ("f()", "f(new=1)"),
    "space in an empty call": ("f( )", "f( new=1)"),
    "empty call on two lines": ("f(\n)", "f(\n    new=1,  # why\n)"),
    "only a comment inside": (
        "f(\n    # nothing yet\n)",
        "f(\n    # nothing yet\n    new=1,  # why\n)",
    ),
    "one positional": ("f(a)", "f(a, new=1)"),
    "one line": ("f(a, b=2)", "f(a, b=2, new=1)"),
    "no space behind commas": ("f(a,b=2)", "f(a,b=2,new=1)"),
    "spaces inside the parentheses": ("f( a, b )", "f( a, b, new=1 )"),
    "spaced equals signs": ("f(a, b = 2)", "f(a, b = 2, new = 1)"),
    "the last keyword decides on spaces": ("f(a = 1, b=2)", "f(a = 1, b=2, new=1)"),
    "trailing comma on one line": ("f(a,)", "f(a, new=1,)"),
    "trailing comma and space": ("f(a, b, )", "f(a, b, new=1, )"),
    "star argument": ("f(*a)", "f(*a, new=1)"),
    "double star argument": ("f(**k)", "f(**k, new=1)"),
    "both stars": ("f(*a, **k)", "f(*a, **k, new=1)"),
    "a bare generator": ("f(x for x in y)", "f((x for x in y), new=1)"),
    "a generator in parentheses": ("f((x for x in y))", "f((x for x in y), new=1)"),
    "one per line": (
        "f(\n    a,\n    b=2,\n)",
        "f(\n    a,\n    b=2,\n    new=1,  # why\n)",
    ),
    "one per line without the last comma": (
        "f(\n    a,\n    b=2\n)",
        "f(\n    a,\n    b=2,\n    new=1,  # why\n)",
    ),
    "one per line, spaced": (
        "f(\n  a = 1,\n  b = 2,\n  )",
        "f(\n  a = 1,\n  b = 2,\n  new = 1,  # why\n  )",
    ),
    "stars one per line": (
        "f(\n    *a,\n    **k\n)",
        "f(\n    *a,\n    **k,\n    new=1,  # why\n)",
    ),
    "comments behind arguments": (
        "f(\n    a,  # one\n    b=2,  # two\n)",
        "f(\n    a,  # one\n    b=2,  # two\n    new=1,  # why\n)",
    ),
    "a comment behind the last argument, no comma": (
        "f(\n    a,  # one\n    b=2  # two\n)",
        "f(\n    a,  # one\n    b=2,  # two\n    new=1,  # why\n)",
    ),
    "a commented-out argument at the end": (
        "f(\n    a,\n    # b=2,\n)",
        "f(\n    a,\n    # b=2,\n    new=1,  # why\n)",
    ),
    "several on a line": (
        "f(\n    a, b,\n    c,\n)",
        "f(\n    a, b,\n    c,\n    new=1,  # why\n)",
    ),
    "all on the second line": ("f(\n    a, b)", "f(\n    a, b, new=1)"),
    "starting behind the parenthesis": ("f(a,\n  b=2)", "f(a,\n  b=2,\n  new=1)"),
    "starting behind it, closed on a line of its own": (
        "f(a,\n  b=2,\n)",
        "f(a,\n  b=2,\n  new=1,  # why\n)",
    ),
    "starting behind it, comments behind": (
        "f(a,  # one\n  b=2,  # two\n )",
        "f(a,  # one\n  b=2,  # two\n  new=1,  # why\n )",
    ),
    "commas in front": (
        "f(\n    a\n    , b\n)",
        "f(\n    a\n    , b,\n    new=1,  # why\n)",
    ),
    "blank lines between": (
        "f(\n    a,\n\n    b,\n\n)",
        "f(\n    a,\n\n    b,\n\n    new=1,  # why\n)",
    ),
    "a value over several lines": (
        'f("x"\n  "y")',
        'f("x"\n  "y", new=1)',
    ),
}


@pytest.mark.parametrize(("before", "after"), WITH_KEYWORD.values(), ids=WITH_KEYWORD.keys())
def test_a_new_keyword_takes_the_layout_of_the_call(before: str, after: str) -> None:
    check(cst_nodes.with_keyword(call_of(before), "new", "1", "why"), after)


@pytest.mark.parametrize("before", [b for b, _ in WITH_KEYWORD.values()], ids=WITH_KEYWORD.keys())
def test_without_a_comment_none_is_written(before: str) -> None:
    after = cst_nodes.code_of(cst_nodes.with_keyword(call_of(before), "new", "1"))
    assert after.count("#") == before.count("#")
    assert not any(line != line.rstrip() for line in after.splitlines())


@pytest.mark.parametrize("before", [b for b, _ in WITH_KEYWORD.values()], ids=WITH_KEYWORD.keys())
def test_a_second_time_changes_nothing(before: str) -> None:
    once = cst_nodes.with_keyword(call_of(before), "new", "1", "why")
    assert cst_nodes.with_keyword(once, "new", "1", "why").deep_equals(once)


@pytest.mark.parametrize("before", [b for b, _ in WITH_KEYWORD.values()], ids=WITH_KEYWORD.keys())
def test_every_layout_holds_inside_a_block(before: str) -> None:
    indented = before.replace("\n", "\n    ")
    module = cst.parse_module(f"if x:\n    y = {indented}\n")

    class Add(cst.CSTTransformer):
        def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
            return cst_nodes.with_keyword(updated_node, "new", "1", "why")

    after = cst_nodes.code_of(cst_nodes.with_keyword(call_of(before), "new", "1", "why")).replace(
        "\n", "\n    "
    )
    assert module.visit(Add()).code == f"if x:\n    y = {after}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('f(m, new="auto")', "f(m, new=1)"),
        ('f(new = "auto", b = 2)', "f(new = 1, b = 2)"),
        (
            'f(\n    new = "auto",  # the map\n    b = 2,\n)',
            "f(\n    new = 1,  # the map\n    b = 2,\n)",
        ),
        ("f(new={\n    'a': 1,\n})", "f(new=1)"),
    ],
)
def test_a_keyword_that_is_there_gets_the_value(before: str, after: str) -> None:
    check(cst_nodes.with_keyword(call_of(before), "new", "1", "why"), after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{"k": v, "l": w}'),
        ('{"a": 1}', '{"k": v, "l": w, "a": 1}'),
        ('{ "a": 1 }', '{ "k": v, "l": w, "a": 1 }'),
        ("{**base}", '{"k": v, "l": w, **base}'),
        (
            '{\n    "a": 1,\n    "b": 2,\n}',
            '{\n    "k": v,\n    "l": w,\n    "a": 1,\n    "b": 2,\n}',
        ),
        (
            '{  # all of it\n  "a": 1}',
            '{  # all of it\n  "k": v,\n  "l": w,\n  "a": 1}',
        ),
        ("{\n}", '{\n    "k": v,\n    "l": w,\n}'),
        ("{\n    # nothing yet\n}", '{\n    # nothing yet\n    "k": v,\n    "l": w,\n}'),
    ],
)
def test_new_items_stand_first_in_a_dict(before: str, after: str) -> None:
    check(cst_nodes.with_dict_items(dict_of(before), {"k": "v", "l": "w"}), after)


@pytest.mark.parametrize(
    ("inner", "after"),
    [
        ("a", "g(a)"),
        ("f(x, y)", "g(f(x, y))"),
        ("(a, b)", "g((a, b))"),
        ("(x for x in y)", "g((x for x in y))"),
        ("(n := 2)", "g((n := 2))"),
        ("[x for x in y]", "g([x for x in y])"),
        ("a if b else c", "g(a if b else c)"),
        ("lambda: 0", "g(lambda: 0)"),
    ],
)
def test_a_wrapped_expression_is_one_argument(inner: str, after: str) -> None:
    check(cst_nodes.wrapped(cst.parse_expression(inner), "g"), after)


def test_a_tuple_without_parentheses_is_one_argument() -> None:
    line = cst.parse_module("a, b\n").body[0]
    assert isinstance(line, cst.SimpleStatementLine)
    statement = line.body[0]
    assert isinstance(statement, cst.Expr)
    check(cst_nodes.wrapped(statement.value, "g"), "g((a, b))")


@pytest.mark.parametrize(
    ("code", "after"),
    [
        ("a + b", "(a + b)"),
        ("(a + b)", "(a + b)"),
        ("a if b else c", "(a if b else c)"),
        ("lambda: 0", "(lambda: 0)"),
        ("a", "a"),
        ("a.b", "a.b"),
        ("a[0]", "a[0]"),
        ("f(x)", "f(x)"),
        ("1", "1"),
        ('"text"', '"text"'),
    ],
)
def test_parentheses_come_only_where_they_are_needed(code: str, after: str) -> None:
    check(cst_nodes.parenthesised(cst.parse_expression(code)), after)


def block(code: str, header: str = "if main:", comment: str = "") -> cst.Module:
    module = cst.parse_module(code)
    return module.with_changes(body=[cst_nodes.block_under(header, module.body, comment)])


def test_a_block_stands_under_its_header() -> None:
    check(block("a()\nb()\n"), "if main:\n    a()\n    b()\n")


def test_a_header_has_its_comment_behind_it() -> None:
    check(block("a()\n", "with first():", "why"), "with first():  # why\n    a()\n")


def test_comments_above_the_first_statement_stay_above_the_block() -> None:
    before = "x = 1\n# about a\na()\n# about b\nb()  # behind b\n"
    module = cst.parse_module(before)
    first, *rest = module.body
    after = module.with_changes(body=[first, cst_nodes.block_under("if main:", rest)])
    check(after, "x = 1\n# about a\nif main:\n    a()\n    # about b\n    b()  # behind b\n")


def test_an_empty_line_between_two_statements_stays_empty() -> None:
    check(block("a()\n\n# about b\n\nb()\n"), "if main:\n    a()\n\n    # about b\n\n    b()\n")


def test_a_string_over_several_lines_is_not_indented() -> None:
    check(
        block('text = """\nfirst\n  second\n"""\nsave(text)\n'),
        'if main:\n    text = """\nfirst\n  second\n"""\n    save(text)\n',
    )


def test_a_block_of_another_indent_keeps_it_inside() -> None:
    check(block("for x in y:\n  if x:\n    a()\n"), "if main:\n    for x in y:\n      if x:\n        a()\n")


def is_call(node: cst.CSTNode) -> bool:
    call = node.value if isinstance(node, cst.Expr) else node
    return isinstance(call, cst.Call) and cst_nodes.code_of(call.func) != "plain"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = 1; f()\n", "a = 1\nf()\n"),
        ("f(); g(); a = 1\n", "f()\ng()\na = 1\n"),
        ("# above\nf(); a = 1  # behind\n", "# above\nf()\na = 1  # behind\n"),
        ("f(); a = 1;\n", "f()\na = 1;\n"),
        ("if x:\n  f(); a = 1\n", "if x:\n  f()\n  a = 1\n"),
        ("a = 1; b = 2\n", "a = 1; b = 2\n"),
        ("f();\n", "f();\n"),
        ("text = 'a; b'\n", "text = 'a; b'\n"),
        ("if x: f(); a = 1\n", "if x:\n    f()\n    a = 1\n"),
        ("if x: f()\n", "if x: f()\n"),
        ("def g(): f()  # behind\n", "def g():\n    f()  # behind\n"),
        ("def g(x): return f(x) + 1\n", "def g(x):\n    return f(x) + 1\n"),
        ("def g(x): return x + 1\n", "def g(x): return x + 1\n"),
        ("class A:\n  def g(self): return f(self)\n", "class A:\n  def g(self):\n    return f(self)\n"),
        ("def g(x): return plain(x)\n", "def g(x):\n    return plain(x)\n"),
        (
            "# above\ng = lambda x, *y: f(x)  # behind\n",
            "# above\ndef g(x, *y):\n    return f(x)  # behind\n",
        ),
        ("g = (lambda:\n  a +\n  f())\n", "def g():\n    return (a +\n      f())\n"),
        ("a = 1; g = lambda: f()\n", "a = 1\ndef g():\n    return f()\n"),
        ("g = lambda x: plain(x)\n", "g = lambda x: plain(x)\n"),
        ("a.g = lambda x: f(x)\n", "a.g = lambda x: f(x)\n"),
        ("(g) = lambda x: f(x)\n", "(g) = lambda x: f(x)\n"),
        ("g = (lambda:  # why\n  f())\n", "g = (lambda:  # why\n  f())\n"),
        ("g = lambda m: sum(f(p) for p in m)\n", "g = lambda m: sum(f(p) for p in m)\n"),
        ("g = lambda m: f(sum(m))\n", "def g(m):\n    return f(sum(m))\n"),
        ("for m in ms: f(m.parameters())\n", "for m in ms:\n    f(m.parameters())\n"),
        ("for m in ms: f(m)\n", "for m in ms: f(m)\n"),
    ],
)
def test_a_line_is_split_where_a_part_matters(before: str, after: str) -> None:
    check(cst_nodes.one_per_line(cst.parse_module(before), is_call), after)


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ('"a"', "a"),
        ("'a' \"b\"", "ab"),
        ('r"\\d"', "\\d"),
        ('f"{a}"', None),
        ('b"a"', None),
        ("a", None),
        ('"a" + "b"', None),
    ],
)
def test_only_a_plain_literal_has_a_text(code: str, value: str | None) -> None:
    assert cst_nodes.string_value(cst.parse_expression(code)) == value


def test_nothing_has_no_text() -> None:
    assert cst_nodes.string_value(None) is None


def test_comments_above_parsed_statements_belong_to_the_first() -> None:
    first, second = cst_nodes.statements("# above\na = 1\nb = 2\n")
    assert [line.comment.value for line in first.leading_lines if line.comment] == ["# above"]
    assert not second.leading_lines
