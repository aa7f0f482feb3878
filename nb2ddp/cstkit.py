"""Node surgery that keeps the user's layout: the one place that edits arguments and blocks.

Every function here takes an *updated* node and gives back a new one, so that edits of nested nodes
compose. Nothing outside the edited spot changes, whitespace and comments included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import libcst as cst

_NO_SPACE = cst.SimpleWhitespace("")
_SPACE = cst.SimpleWhitespace(" ")


def expression(code: str) -> cst.BaseExpression:
    return cst.parse_expression(code)


def replaced(_: cst.CSTNode, code: str) -> cst.BaseExpression:
    """The expression ``code`` in place of whatever stands there, for edits that need nothing of it."""
    return expression(code)


def statements(code: str) -> tuple[cst.SimpleStatementLine | cst.BaseCompoundStatement, ...]:
    """Parse statements; comments above the first one become its leading lines."""
    module = cst.parse_module(code)
    first, *rest = module.body
    lines = (*module.header, *first.leading_lines)
    return (first.with_changes(leading_lines=lines), *rest)


def with_keyword(call: cst.Call, name: str, value: str, comment: str = "") -> cst.Call:
    """``call`` with the keyword argument ``name=value``: its value swapped, or a new last argument.

    ``comment`` is written behind a new argument when arguments stand one per line.
    """
    for index, argument in enumerate(call.args):
        if argument.keyword is not None and argument.keyword.value == name:
            changed = argument.with_changes(value=expression(value))
            return call.with_changes(args=[*call.args[:index], changed, *call.args[index + 1 :]])
    new = cst.Arg(value=expression(value), keyword=cst.Name(name), equal=_equal_like(call.args))
    if not call.args:
        return call.with_changes(args=[new])
    *before, last = call.args
    opening = call.whitespace_before_args
    gap = last.comma.whitespace_after if isinstance(last.comma, cst.Comma) else last.whitespace_after_arg
    if isinstance(opening, cst.ParenthesizedWhitespace) and isinstance(gap, cst.ParenthesizedWhitespace):
        # One argument per line: the closing parenthesis keeps its line, comments keep theirs.
        separator = gap.with_changes(indent=opening.indent, last_line=opening.last_line)
        note = cst.Comment(f"# {comment}") if comment else None
        ending = cst.ParenthesizedWhitespace(
            first_line=cst.TrailingWhitespace(
                whitespace=cst.SimpleWhitespace("  ") if note else _NO_SPACE, comment=note
            ),
            indent=gap.indent,
            last_line=gap.last_line,
        )
        last = last.with_changes(comma=cst.Comma(whitespace_after=separator), whitespace_after_arg=_NO_SPACE)
        new = new.with_changes(comma=cst.Comma(whitespace_after=ending))
    elif isinstance(last.comma, cst.Comma):
        new = new.with_changes(comma=last.comma)
        last = last.with_changes(comma=cst.Comma(whitespace_after=_SPACE))
    else:
        new = new.with_changes(whitespace_after_arg=last.whitespace_after_arg)
        separator_after = _separator_like(before)
        last = last.with_changes(
            comma=cst.Comma(whitespace_after=separator_after), whitespace_after_arg=_NO_SPACE
        )
    return call.with_changes(args=[*before, last, new])


def without_keyword(call: cst.Call, name: str) -> cst.Call:
    """``call`` without the keyword argument ``name``; the last argument keeps the closing layout."""
    kept = [a for a in call.args if a.keyword is None or a.keyword.value != name]
    if len(kept) == len(call.args):
        return call
    if kept and call.args[-1] is not kept[-1]:
        gone = call.args[-1]
        kept[-1] = kept[-1].with_changes(comma=gone.comma, whitespace_after_arg=gone.whitespace_after_arg)
    return call.with_changes(args=kept)


def wrapped_call(function: str, inner: cst.BaseExpression) -> cst.Call:
    """``function(inner)``, with ``inner`` as it stands; a bare tuple stays one argument."""
    if isinstance(inner, cst.Tuple | cst.NamedExpr | cst.Yield):
        inner = parenthesised(inner)
    return cst.Call(func=expression(function), args=[cst.Arg(value=inner)])


def parenthesised(node: cst.BaseExpression) -> cst.BaseExpression:
    """``node`` in parentheses, unless it needs none wherever an expression may stand."""
    if isinstance(
        node, cst.Name | cst.Call | cst.Attribute | cst.Subscript | cst.BaseNumber | cst.BaseString
    ):
        return node
    if node.lpar:
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def block_under(
    header: str, body: Sequence[cst.SimpleStatementLine | cst.BaseCompoundStatement], comment: str = ""
) -> cst.BaseCompoundStatement:
    """``body`` indented under ``if ...:`` or ``with ...:``; comments above the first stay above the block."""
    first, *rest = body
    shell = cst.parse_statement(f"{header}\n    pass")
    assert isinstance(shell, cst.If | cst.With)
    note = cst.Comment(f"# {comment}") if comment else None
    spaces = cst.SimpleWhitespace("  ") if note else _NO_SPACE
    block = cst.IndentedBlock(
        body=[first.with_changes(leading_lines=()), *rest],
        header=cst.TrailingWhitespace(whitespace=spaces, comment=note),
    )
    return shell.with_changes(body=block, leading_lines=first.leading_lines)


def one_per_line(module: cst.Module, matters: Callable[[cst.BaseSmallStatement], bool]) -> cst.Module:
    """``module`` with every line ``a; b`` split that has a part that ``matters``."""

    class Splitter(cst.CSTTransformer):
        def leave_SimpleStatementLine(
            self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
        ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
            *before, last = updated_node.body
            if not before or not any(matters(part) for part in updated_node.body):
                return updated_node
            lines = [
                cst.SimpleStatementLine([part.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
                for part in before
            ]
            lines[0] = lines[0].with_changes(leading_lines=updated_node.leading_lines)
            return cst.FlattenSentinel([*lines, updated_node.with_changes(body=[last], leading_lines=())])

    return module.visit(Splitter())


def string_value(node: cst.CSTNode | None) -> str | None:
    """The text of a plain string literal; None for anything else."""
    if isinstance(node, cst.SimpleString | cst.ConcatenatedString):
        value = node.evaluated_value
        return value if isinstance(value, str) else None
    return None


def code_of(node: cst.CSTNode) -> str:
    """The node as source text."""
    return cst.Module(body=()).code_for_node(node)


def _equal_like(arguments: Sequence[cst.Arg]) -> cst.AssignEqual:
    """``x = y`` or ``x=y``, as the call's other keyword arguments are written."""
    for argument in reversed(arguments):
        if argument.keyword is not None and isinstance(argument.equal, cst.AssignEqual):
            spaced = not argument.equal.whitespace_before.empty
            return cst.AssignEqual(_SPACE if spaced else _NO_SPACE, _SPACE if spaced else _NO_SPACE)
    return cst.AssignEqual(_NO_SPACE, _NO_SPACE)


def _separator_like(before: Sequence[cst.Arg]) -> cst.BaseParenthesizableWhitespace:
    """What follows the commas between the arguments; a comment there is not repeated."""
    if before and isinstance(before[-1].comma, cst.Comma):
        space = before[-1].comma.whitespace_after
        if isinstance(space, cst.ParenthesizedWhitespace):
            return cst.ParenthesizedWhitespace(indent=space.indent, last_line=space.last_line)
        return space
    return _SPACE


def with_dict_items(node: cst.Dict, items: dict[str, str]) -> cst.Dict:
    """``node`` with further ``"key": value`` items at its start, on the line of the first one."""
    new = [
        cst.DictElement(
            cst.SimpleString(f'"{key}"'), expression(value), comma=cst.Comma(whitespace_after=_SPACE)
        )
        for key, value in items.items()
    ]
    return node.with_changes(elements=[*new, *node.elements])
