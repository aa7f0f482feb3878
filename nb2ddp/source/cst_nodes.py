"""Node surgery that keeps the user's layout: the one place that edits arguments and blocks.

Every function here takes an *updated* node and gives back a new one, so that edits of nested nodes
compose. Nothing outside the edited spot changes, whitespace and comments included.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

import libcst as cst
from libcst import matchers

_NO_SPACE = cst.SimpleWhitespace("")
_SPACE = cst.SimpleWhitespace(" ")


def expression(code: str) -> cst.BaseExpression:
    return cst.parse_expression(code)


def replaced(_: cst.CSTNode, code: str) -> cst.BaseExpression:
    """Return the expression ``code`` in place of any node, for edits that keep nothing of it."""
    return expression(code)


def statements(code: str) -> tuple[cst.SimpleStatementLine | cst.BaseCompoundStatement, ...]:
    """Parse statements; comments above the first one become its leading lines."""
    module = cst.parse_module(code)
    first, *rest = module.body
    lines = (*module.header, *first.leading_lines)
    return (first.with_changes(leading_lines=lines), *rest)


def with_keyword(call: cst.Call, name: str, value: str, comment: str = "") -> cst.Call:
    """Return ``call`` with the keyword argument ``name=value``: its value swapped, or a new last argument.

    ``comment`` is written behind a new argument when arguments stand one per line.
    """
    for index, argument in enumerate(call.args):
        if argument.keyword is not None and argument.keyword.value == name:
            changed = argument.with_changes(value=expression(value))
            return call.with_changes(args=[*call.args[:index], changed, *call.args[index + 1 :]])
    new = cst.Arg(value=expression(value), keyword=cst.Name(name), equal=_equal_like(call.args))
    opening = call.whitespace_before_args
    if not call.args:
        if not isinstance(opening, cst.ParenthesizedWhitespace):
            return call.with_changes(args=[new])
        inner = cst.SimpleWhitespace(f"{opening.last_line.value}    ")
        return call.with_changes(
            args=[new.with_changes(comma=_line_end(opening, comment))],
            whitespace_before_args=opening.with_changes(last_line=inner),
        )
    *before, last = call.args
    if isinstance(last.value, cst.GeneratorExp):
        last = last.with_changes(value=parenthesised(last.value))  # bare, it has to be the only argument
    gap = last.comma.whitespace_after if isinstance(last.comma, cst.Comma) else last.whitespace_after_arg
    line = _line_start(opening, before)
    if line is not None and isinstance(gap, cst.ParenthesizedWhitespace):
        # One argument per line: the closing parenthesis keeps its line, comments keep theirs.
        separator = gap.with_changes(indent=line.indent, last_line=line.last_line)
        last = last.with_changes(comma=cst.Comma(whitespace_after=separator), whitespace_after_arg=_NO_SPACE)
        new = new.with_changes(comma=_line_end(gap, comment))
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


def with_dict_items(node: cst.Dict, items: dict[str, str]) -> cst.Dict:
    """Return ``node`` with these ``"key": value`` items: its own replaced, others at its start, in lines as its own."""
    kept, missing = [], {**items}
    for element in node.elements:
        key = string_value(element.key) if isinstance(element, cst.DictElement) else None
        kept.append(element.with_changes(value=expression(missing.pop(key))) if key in missing else element)
    node = node.with_changes(elements=kept)
    if not missing:
        return node
    opening = (brace := node.lbrace).whitespace_after
    separator: cst.BaseParenthesizableWhitespace = _SPACE
    closing: cst.Comma | cst.MaybeSentinel = cst.MaybeSentinel.DEFAULT
    if isinstance(opening, cst.ParenthesizedWhitespace):
        closing = _line_end(opening, "")
        if not node.elements:
            opening = opening.with_changes(last_line=cst.SimpleWhitespace(f"{opening.last_line.value}    "))
            brace = brace.with_changes(whitespace_after=opening)
        separator = cst.ParenthesizedWhitespace(indent=opening.indent, last_line=opening.last_line)
    between = cst.Comma(whitespace_after=separator)
    new = [cst.DictElement(cst.SimpleString(f'"{k}"'), expression(v), between) for k, v in missing.items()]
    if not node.elements:
        new[-1] = new[-1].with_changes(comma=closing)
    return node.with_changes(lbrace=brace, elements=[*new, *node.elements])


def wrapped(inner: cst.CSTNode, function: str) -> cst.Call:
    """Return ``function(inner)``, or ``f(a, b=inner)`` for ``f(a, b=_)``; a bare tuple stays one argument."""
    assert isinstance(inner, cst.BaseExpression)
    if isinstance(inner, cst.Tuple | cst.NamedExpr | cst.Yield | cst.GeneratorExp):
        inner = parenthesised(inner)
    call = expression(function)
    if isinstance(call, cst.Call):
        return call.with_changes(args=[*call.args[:-1], call.args[-1].with_changes(value=inner)])
    return cst.Call(func=call, args=[cst.Arg(value=inner)])


def deferred(node: cst.CSTNode, function: str, given: Sequence[str] = ()) -> cst.Call:
    """Return ``function(lambda: node)``: the function decides which rank evaluates ``node``.

    ``given`` are names that the lambda would not see, as in ``lambda x=x: node``.
    """
    return _called_with_lambda(function, node, {name: cst.Name(name) for name in given})


def agreed(node: cst.CSTNode, function: str) -> cst.Call:
    """Return ``function(lambda answer=node: answer)``: all ranks evaluate ``node``, the function decides for which."""
    return _called_with_lambda(function, cst.Name("answer"), {"answer": node})


def _called_with_lambda(function: str, body: cst.CSTNode, given: Mapping[str, cst.CSTNode]) -> cst.Call:
    assert isinstance(body, cst.BaseExpression)
    equal = cst.AssignEqual(_NO_SPACE, _NO_SPACE)
    params = []
    for name, value in given.items():
        assert isinstance(value, cst.BaseExpression)
        value = parenthesised(value) if isinstance(value, cst.NamedExpr) else value
        params.append(cst.Param(cst.Name(name), default=value, equal=equal))
    return wrapped(cst.Lambda(params=cst.Parameters(params=params), body=body), function)


def parenthesised(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return ``node`` in parentheses, unless it needs none wherever an expression may stand."""
    closed = cst.Name | cst.Call | cst.Attribute | cst.Subscript | cst.BaseNumber | cst.BaseString
    if node.lpar or isinstance(node, closed):
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def block_under(
    header: str, body: Sequence[cst.SimpleStatementLine | cst.BaseCompoundStatement], comment: str = ""
) -> cst.BaseCompoundStatement:
    """Return ``body`` indented under ``if ...:`` or ``with ...:``; comments above the first stay above the block."""
    first, *rest = body
    shell = cst.parse_statement(f"{header}\n    pass")
    assert isinstance(shell, cst.If | cst.With)
    note = cst.Comment(f"# {comment}") if comment else None
    spaces = cst.SimpleWhitespace("  ") if note else _NO_SPACE
    block = cst.IndentedBlock(
        body=[first.with_changes(leading_lines=()), *map(_without_blanks, rest)],
        indent="    ",
        header=cst.TrailingWhitespace(whitespace=spaces, comment=note),
    )
    return shell.with_changes(body=block, leading_lines=first.leading_lines)


def _without_blanks(
    statement: cst.SimpleStatementLine | cst.BaseCompoundStatement,
) -> cst.SimpleStatementLine | cst.BaseCompoundStatement:
    """Return ``statement`` with nothing on the empty lines above it: those of a module would be indented with it."""
    lines = [line if line.comment else line.with_changes(indent=False) for line in statement.leading_lines]
    return statement.with_changes(leading_lines=lines)


def one_per_line(module: cst.Module, matters: Callable[[cst.CSTNode], bool]) -> cst.Module:
    """Give statements of ``module`` lines of their own: parts of ``a; b`` that matter, bodies of functions.

    A one-line function that calls something gets a body below it, so does a one-line loop over models or Trainers,
    and ``name = lambda x: f(x)`` becomes a function where a call of the lambda ``matters``.
    """

    class Splitter(cst.CSTTransformer):
        def leave_SimpleStatementLine(
            self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
        ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
            *before, last = updated_node.body
            named = [_named_lambda(part) for part in updated_node.body]
            held = [part for part in named if part is not None and _holds(part, matters)]
            if not held and (not before or not any(matters(part) for part in updated_node.body)):
                return updated_node
            lines: list[cst.BaseStatement] = []
            for part, made in zip(updated_node.body, named, strict=True):
                line = cst.SimpleStatementLine([part.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
                if part is last:
                    line = updated_node.with_changes(body=[part], leading_lines=())
                lines.append(_as_function(line, made) if made is not None and made in held else line)
            lines[0] = lines[0].with_changes(leading_lines=updated_node.leading_lines)
            return cst.FlattenSentinel(lines)

        def leave_SimpleStatementSuite(
            self, original_node: cst.SimpleStatementSuite, updated_node: cst.SimpleStatementSuite
        ) -> cst.SimpleStatementSuite | cst.IndentedBlock:
            crowded = len(updated_node.body) > 1 and any(map(matters, updated_node.body))
            return _unfolded(updated_node) if crowded else updated_node

        def leave_FunctionDef(
            self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
        ) -> cst.FunctionDef:
            body = updated_node.body
            if not isinstance(body, cst.SimpleStatementSuite) or not matchers.findall(body, matchers.Call()):
                return updated_node
            return updated_node.with_changes(body=_unfolded(body))

        def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If:
            test, body, orelse = updated_node.test, updated_node.body, updated_node.orelse
            asks = isinstance(orelse, cst.Else) or matchers.findall(test, matchers.NamedExpr())
            if not asks or not _holds(updated_node, matters):
                return updated_node
            if isinstance(orelse, cst.Else) and isinstance(orelse.body, cst.SimpleStatementSuite):
                orelse = orelse.with_changes(body=_unfolded(orelse.body))
            body = _unfolded(body) if isinstance(body, cst.SimpleStatementSuite) else body
            return updated_node.with_changes(body=body, orelse=orelse)

        def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
            body = updated_node.body
            if not isinstance(body, cst.SimpleStatementSuite) or not _holds(body, _trains):
                return updated_node
            return updated_node.with_changes(body=_unfolded(body))

    return module.visit(Splitter())


def _holds(node: cst.CSTNode, matters: Callable[[cst.CSTNode], bool]) -> bool:
    """Return whether a call that matters is in ``node``; what is summed up is counted alone."""
    counted: set[cst.CSTNode] = set()
    for call in matchers.findall(node, matchers.Call(func=matchers.Name("sum"))):
        counted.update(matchers.findall(call, matchers.Call()))
    return any(matters(call) for call in matchers.findall(node, matchers.Call()) if call not in counted)


def _trains(call: cst.CSTNode) -> bool:
    """Return whether a call is ``trainer.train()``, or ``model.parameters()``, as an optimizer is given it."""
    return isinstance(call, cst.Call) and method_of(call) in ("parameters", "named_parameters", "train")


def _named_lambda(part: cst.BaseSmallStatement) -> cst.Lambda | None:
    """Return the lambda of ``name = lambda ...``, unless there are comments in it."""
    if isinstance(part, cst.Assign) and len(part.targets) == 1 and isinstance(part.value, cst.Lambda):
        target = part.targets[0].target
        plain = isinstance(target, cst.Name) and not target.lpar
        return part.value if plain and not matchers.findall(part, matchers.Comment()) else None
    return None


def _as_function(line: cst.SimpleStatementLine, value: cst.Lambda) -> cst.FunctionDef:
    """Return ``name = lambda x: f(x)`` as a function of that name."""
    assigned = cst.ensure_type(line.body[0], cst.Assign)
    body = value.body
    if value.lpar and not body.lpar:  # they may hold line breaks
        body = body.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.FunctionDef(
        name=cst.ensure_type(assigned.targets[0].target, cst.Name),
        params=value.params,
        body=cst.IndentedBlock([line.with_changes(body=[cst.Return(body)], leading_lines=())]),
        leading_lines=line.leading_lines,
    )


def _unfolded(suite: cst.SimpleStatementSuite) -> cst.IndentedBlock:
    """Return the statements behind a colon as a block on lines of its own."""
    parts = [part.with_changes(semicolon=cst.MaybeSentinel.DEFAULT) for part in suite.body]
    lines = [cst.SimpleStatementLine([part]) for part in parts]
    lines[-1] = lines[-1].with_changes(trailing_whitespace=suite.trailing_whitespace)
    return cst.IndentedBlock(lines)


def method_of(call: cst.Call) -> str:
    """Return the attribute that is called: ``train`` of ``trainer.train()``; "" for a plain function."""
    return call.func.attr.value if isinstance(call.func, cst.Attribute) else ""


def keyword_of(call: cst.Call, name: str) -> cst.BaseExpression | None:
    """Return the value of the keyword argument ``name``; None where the call has none."""
    return next((arg.value for arg in call.args if arg.keyword and arg.keyword.value == name), None)


def unnamed(arguments: Sequence[cst.Arg]) -> list[cst.BaseExpression]:
    """List the values of the arguments that have no name and no star."""
    return [argument.value for argument in arguments if argument.keyword is None and not argument.star]


def is_word(node: cst.CSTNode | None, word: str) -> bool:
    """Return whether a node is this name: ``None``, ``True``."""
    return isinstance(node, cst.Name) and node.value == word


def given(call: cst.Call, place: int, *names: str) -> cst.BaseExpression | None:
    """Return the argument that a call gets by one of its names, or at its place; None without one."""
    for name in names:
        if (value := keyword_of(call, name)) is not None:
            return value
    values = unnamed(call.args)
    return values[place] if place < len(values) else None


def string_value(node: cst.CSTNode | None) -> str | None:
    """Return the text of a plain string literal; None for anything else."""
    if not isinstance(node, cst.SimpleString | cst.ConcatenatedString):
        return None
    with warnings.catch_warnings():  # escapes like "\d" are the notebook's own affair
        warnings.simplefilter("ignore")
        value = node.evaluated_value
    return value if isinstance(value, str) else None


def code_of(node: cst.CSTNode) -> str:
    """Return the node as source text."""
    return cst.Module(body=()).code_for_node(node)


def one_line(node: cst.CSTNode) -> str:
    """Return a node's code on one line, as a message quotes it."""
    return " ".join(code_of(node).split())


def _equal_like(arguments: Sequence[cst.Arg]) -> cst.AssignEqual:
    """Return ``x = y`` or ``x=y``, as the call's other keyword arguments are written."""
    equals = (arg.equal for arg in reversed(arguments) if isinstance(arg.equal, cst.AssignEqual))
    space = _NO_SPACE if (last := next(equals, None)) is None or last.whitespace_before.empty else _SPACE
    return cst.AssignEqual(space, space)


def _separator_like(before: Sequence[cst.Arg]) -> cst.BaseParenthesizableWhitespace:
    """Return what follows the commas between the arguments; a comment there is not repeated."""
    if before and isinstance(before[-1].comma, cst.Comma):
        space = before[-1].comma.whitespace_after
        if isinstance(space, cst.ParenthesizedWhitespace):
            return cst.ParenthesizedWhitespace(indent=space.indent, last_line=space.last_line)
        return space
    return _SPACE


def _line_start(
    opening: cst.BaseParenthesizableWhitespace, before: Sequence[cst.Arg]
) -> cst.ParenthesizedWhitespace | None:
    """Return the line break that a line of arguments begins with; None where all stand on one line."""
    commas = (argument.comma for argument in reversed(before))
    spaces = (opening, *(comma.whitespace_after for comma in commas if isinstance(comma, cst.Comma)))
    return next((space for space in spaces if isinstance(space, cst.ParenthesizedWhitespace)), None)


def _line_end(gap: cst.ParenthesizedWhitespace, comment: str) -> cst.Comma:
    """Return a comma with a comment behind it; the closing bracket stands where ``gap`` has it."""
    note = cst.Comment(f"# {comment}") if comment else None
    spaces = cst.SimpleWhitespace("  ") if note else _NO_SPACE
    ending = cst.ParenthesizedWhitespace(
        first_line=cst.TrailingWhitespace(whitespace=spaces, comment=note),
        indent=gap.indent,
        last_line=gap.last_line,
    )
    return cst.Comma(whitespace_after=ending)
