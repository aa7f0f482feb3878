"""Check the syntax of a cell without running it: with the running Python, and for syntax newer than that.

Kaggle and Colab run Python 3.12 and later. Where the running Python is older and refuses a cell, the newer
syntax in it (LibCST parses all of it) is replaced by something equivalent that the running Python can check.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import libcst as cst

from nb2ddp.source.parser import UnreadError, parse_module

NEWEST = (3, 15)
"""The newest syntax that is known here."""

TOP_LEVEL_ASYNC = (
    "await, async for and async with work at the top of a notebook alone; put this in an async function and "
    "call it with asyncio.run()"
)

NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What `check` and `parse` raise for a text that no Python compiles."""

# LibCST overflows the stack on what is nested deeper than CPython would ever accept.
_DEEP = re.compile(r"(?:(?:\b(?:not|await)\b|\blambda\b[^:\n]{0,40}:|[-+~])[\s\\]*){100}")
_LONG_LINE = re.compile(r"[^\n]{5000}")
_MOST_BRACKETS, _MOST_IN_BRACKETS, _MOST_BRANCHES = 100, 10_000, 1500
_BRANCH = re.compile(r"\*\*|\b(?:else|elif|lambda|and|or|not)\b")


class TopLevelAsyncError(UnreadError):
    """The code awaits at the top level, as only a notebook can."""


def check(text: str, filename: str = "cell", *, parses: bool = False) -> tuple[int, int] | None:
    """Return None if the running Python compiles ``text``, else the newer version that does.

    parses: LibCST has parsed all parts of the text before, so it cannot be nested too deeply.

    Raises:
        TopLevelAsyncError: the text awaits at its top level.
        UnreadError: LibCST fails on it.
        NOT_PYTHON: no Python compiles it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an escape that the user's strings should not have is theirs to see
        older, version = _known(text, filename, parses=parses)
        try:
            compile(older, filename, "exec", dont_inherit=True)
        except SyntaxError as error:
            try:
                compile(older, filename, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            except NOT_PYTHON:
                raise error from None
            raise TopLevelAsyncError(TOP_LEVEL_ASYNC, error.args[1]) from None
    return version


def parse(text: str) -> ast.Module:
    """Return the tree of ``text``; of syntax that the running Python does not know, that of an equivalent.

    An f-string of Python 3.12, for one, is there as the list of its expressions.

    Raises:
        NOT_PYTHON: no Python compiles it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(_known(text)[0])


def _known(text: str, filename: str = "cell", *, parses: bool = False) -> tuple[str, tuple[int, int] | None]:
    """Return a text in syntax that the running Python knows, and the newer version that it was in."""
    try:
        ast.parse(text, filename)
    except SyntaxError:
        newer = _Older()
        if sys.version_info[:2] >= NEWEST or not (parses or _is_flat(text)):
            raise
        try:
            older = parse_module(text).visit(newer)
        except (SyntaxError, RecursionError) as error:
            if isinstance(error, UnreadError):
                raise
        else:
            if newer.version:
                return older.code, newer.version
        raise
    return text, None


def _is_flat(text: str) -> bool:
    """Whether LibCST can parse the text without overflowing the stack: with room to spare, and no more."""
    if _LONG_LINE.search(text) or _DEEP.search(text) or len(_BRANCH.findall(text)) > _MOST_BRANCHES:
        return False
    depth = start = 0
    for sign in re.finditer(r"[][(){}]", text):
        if depth == 0:
            start = sign.start()
        depth = max(0, depth + (1 if sign[0] in "[({" else -1))
        if depth > _MOST_BRACKETS or (depth and sign.end() - start > _MOST_IN_BRACKETS):
            return False
    return True


class _Older(cst.CSTTransformer):
    """Replaces syntax that is newer than the running Python; ``version`` is the one that introduced it."""

    def __init__(self) -> None:
        super().__init__()
        self.version: tuple[int, int] | None = None

    def _needs(self, *version: int) -> bool:
        if sys.version_info[:2] >= version:
            return False
        self.version = max(self.version or (0, 0), (version[0], version[1]))
        return True

    def visit_ConcatenatedString(self, node: cst.ConcatenatedString) -> bool:
        return False  # it holds strings alone, so its parts cannot be replaced one by one

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        """Replace one node, whose parts have been."""
        match updated_node:
            case cst.FormattedString(parts=parts) if self._needs(3, 12):  # PEP 701
                return _list(_expressions(parts))
            case cst.TemplatedString(parts=parts) if self._needs(3, 14):  # a t-string, PEP 750
                return _list(_expressions(parts))
            case cst.ConcatenatedString():
                return self._side_by_side(updated_node)
            case cst.TypeAlias(name=name, value=value, type_parameters=parameters):  # type X = int, PEP 695
                self._has_newer(parameters)
                if self._needs(3, 12):
                    return cst.Assign([cst.AssignTarget(name)], value)
            case cst.FunctionDef(type_parameters=parameters) if self._has_newer(parameters):
                none = cst.SimpleWhitespace("")
                return updated_node.with_changes(type_parameters=None, whitespace_after_type_parameters=none)
            case cst.ClassDef(type_parameters=parameters) if self._has_newer(parameters):
                return updated_node.with_changes(type_parameters=None)
            case (
                cst.ExceptHandler(type=cst.Tuple(lpar=[]) as kinds)
                | cst.ExceptStarHandler(type=cst.Tuple(lpar=[]) as kinds)
            ) if self._needs(3, 14):  # except A, B: (PEP 758)
                return updated_node.with_changes(type=_bare(kinds))
            case (
                cst.ListComp(elt=cst.StarredElement(value=value))
                | cst.SetComp(elt=cst.StarredElement(value=value))
                | cst.GeneratorExp(elt=cst.StarredElement(value=value))
            ) if self._needs(3, 15):
                return updated_node.with_changes(elt=value)  # [*a for a in b], PEP 798
            case cst.StarredDictComp(value=value, for_in=loop) if self._needs(3, 15):  # {**a for a in b}
                return cst.ListComp(_bare(value), loop)
        return updated_node

    def _side_by_side(self, strings: cst.ConcatenatedString) -> cst.BaseExpression:
        kinds = {isinstance(part, cst.TemplatedString) for part in (strings.left, strings.right)}
        if kinds == {True, False} and not isinstance(strings.right, cst.ConcatenatedString):
            raise cst.CSTValidationError("a t-string beside a string")
        left, right = (part.visit(self) for part in (strings.left, strings.right))
        if left is strings.left and right is strings.right:
            return strings
        return _list([part for part in (left, right) if isinstance(part, cst.BaseExpression)])

    def _has_newer(self, parameters: cst.TypeParameters | None) -> bool:
        """``[T]`` (PEP 695), ``[T = int]`` (PEP 696)."""
        if parameters is None:
            return False
        return self._needs(
            3, 13 if any(parameter.default is not None for parameter in parameters.params) else 12
        )


def _expressions(parts: Iterable[cst.CSTNode]) -> list[cst.BaseExpression]:
    """The expressions of an f-string, those in format specifications too."""
    found: list[cst.BaseExpression] = []
    for part in parts:
        if isinstance(part, cst.FormattedStringExpression | cst.TemplatedStringExpression):
            if part.conversion not in (None, "r", "s", "a"):
                raise cst.CSTValidationError("invalid conversion")
            found += [part.expression, *_expressions(part.format_spec or ())]
    return found


def _list(values: list[cst.BaseExpression]) -> cst.List:
    return cst.List([cst.Element(_bare(value)) for value in values])


def _bare(value: cst.BaseExpression) -> cst.BaseExpression:
    """In parentheses: an f-string may hold ``yield x`` or ``a, b``."""
    return value.with_changes(lpar=[cst.LeftParen(), *value.lpar], rpar=[*value.rpar, cst.RightParen()])
