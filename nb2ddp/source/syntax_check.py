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
from typing import TypeVar

import libcst as cst

from nb2ddp.source.parser import UnreadError, parse_module

NEWEST = (3, 15)
"""The newest syntax that is known here."""

TOP_LEVEL_ASYNC = (
    "await, async for and async with work at the top of a notebook alone; put this in an async function and "
    "call it with asyncio.run()"
)

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
        SyntaxError, ValueError, RecursionError, MemoryError: no Python compiles it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an escape that the user's strings should not have is theirs to see
        try:
            _compile(text, filename)
        except SyntaxError:
            newer = _Older()
            if sys.version_info[:2] >= NEWEST or not (parses or _is_flat(text)):
                raise
            if (older := _with(newer, text)) is None:
                raise
            _compile(older, filename)
            return newer.version
    return None


def parse(text: str) -> ast.Module:
    """Return the tree of ``text``; of syntax that the running Python does not know, that of an equivalent.

    An f-string of Python 3.12, for one, is there as the list of its expressions.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: no Python compiles it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except SyntaxError:
            if not _is_flat(text) or (older := _with(_Older(), text)) is None:
                raise
            return ast.parse(older)


def _compile(text: str, filename: str) -> None:
    try:
        compile(text, filename, "exec", dont_inherit=True)
    except SyntaxError as error:
        try:
            compile(text, filename, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise error from None
        raise TopLevelAsyncError(TOP_LEVEL_ASYNC, error.args[1]) from None


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


def _with(newer: _Older, text: str) -> str | None:
    """Return the text without its newer syntax; None where it has none, or cannot be parsed."""
    try:
        older = parse_module(text).visit(newer)
    except UnreadError:
        raise
    except (SyntaxError, RecursionError):
        return None
    return older.code if newer.version else None


_Handler = TypeVar("_Handler", cst.ExceptHandler, cst.ExceptStarHandler)


class _Older(cst.CSTTransformer):
    """Replaces syntax that is newer than the running Python; ``version`` is the one that introduced it."""

    def __init__(self) -> None:
        super().__init__()
        self.version: tuple[int, int] | None = None

    def _needs(self, version: tuple[int, int]) -> bool:
        if sys.version_info[:2] >= version:
            return False
        self.version = max(self.version or version, version)
        return True

    def leave_FormattedString(
        self, original_node: cst.FormattedString, updated_node: cst.FormattedString
    ) -> cst.BaseExpression:
        """An f-string (PEP 701): its expressions as a list."""
        return _list(_expressions(updated_node.parts)) if self._needs((3, 12)) else updated_node

    def leave_TemplatedString(
        self, original_node: cst.TemplatedString, updated_node: cst.TemplatedString
    ) -> cst.BaseExpression:
        """A t-string (PEP 750)."""
        return _list(_expressions(updated_node.parts)) if self._needs((3, 14)) else updated_node

    def visit_ConcatenatedString(self, node: cst.ConcatenatedString) -> bool:
        return False  # it holds strings alone, so its parts cannot be replaced one by one

    def leave_ConcatenatedString(
        self, original_node: cst.ConcatenatedString, updated_node: cst.ConcatenatedString
    ) -> cst.BaseExpression:
        kinds = {isinstance(part, cst.TemplatedString) for part in (original_node.left, original_node.right)}
        if kinds == {True, False} and not isinstance(original_node.right, cst.ConcatenatedString):
            raise cst.CSTValidationError("a t-string beside a string")
        left, right = (part.visit(self) for part in (original_node.left, original_node.right))
        if left is original_node.left and right is original_node.right:
            return updated_node
        return _list([part for part in (left, right) if isinstance(part, cst.BaseExpression)])

    def _has_newer(self, parameters: cst.TypeParameters | None) -> bool:
        """``[T]`` (PEP 695), ``[T = int]`` (PEP 696)."""
        if parameters is None:
            return False
        has_default = any(parameter.default is not None for parameter in parameters.params)
        return self._needs((3, 13) if has_default else (3, 12))

    def leave_TypeAlias(
        self, original_node: cst.TypeAlias, updated_node: cst.TypeAlias
    ) -> cst.Assign | cst.TypeAlias:
        """``type X = int`` (PEP 695)."""
        self._has_newer(original_node.type_parameters)
        if not self._needs((3, 12)):
            return updated_node
        return cst.Assign([cst.AssignTarget(updated_node.name)], updated_node.value)

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        if not self._has_newer(original_node.type_parameters):
            return updated_node
        return updated_node.with_changes(
            type_parameters=None, whitespace_after_type_parameters=cst.SimpleWhitespace("")
        )

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        if not self._has_newer(original_node.type_parameters):
            return updated_node
        return updated_node.with_changes(type_parameters=None)

    def leave_ExceptHandler(
        self, original_node: cst.ExceptHandler, updated_node: cst.ExceptHandler
    ) -> cst.ExceptHandler:
        return self._in_parentheses(updated_node)

    def leave_ExceptStarHandler(
        self, original_node: cst.ExceptStarHandler, updated_node: cst.ExceptStarHandler
    ) -> cst.ExceptStarHandler:
        return self._in_parentheses(updated_node)

    def _in_parentheses(self, handler: _Handler) -> _Handler:
        """``except A, B:`` and ``except* A, B:`` (PEP 758)."""
        kind = handler.type
        if not isinstance(kind, cst.Tuple) or kind.lpar or not self._needs((3, 14)):
            return handler
        return handler.with_changes(type=_bare(kind))

    def leave_ListComp(self, original_node: cst.ListComp, updated_node: cst.ListComp) -> cst.BaseExpression:
        return self._unpacked(updated_node)

    def leave_SetComp(self, original_node: cst.SetComp, updated_node: cst.SetComp) -> cst.BaseExpression:
        return self._unpacked(updated_node)

    def leave_GeneratorExp(
        self, original_node: cst.GeneratorExp, updated_node: cst.GeneratorExp
    ) -> cst.BaseExpression:
        return self._unpacked(updated_node)

    def _unpacked(self, made: cst.ListComp | cst.SetComp | cst.GeneratorExp) -> cst.BaseExpression:
        """``[*a for a in b]`` (PEP 798)."""
        if not isinstance(made.elt, cst.StarredElement) or not self._needs((3, 15)):
            return made
        return made.with_changes(elt=made.elt.value)

    def leave_StarredDictComp(
        self, original_node: cst.StarredDictComp, updated_node: cst.StarredDictComp
    ) -> cst.BaseExpression:
        """``{**a for a in b}`` (PEP 798)."""
        if not self._needs((3, 15)):
            return updated_node
        return cst.ListComp(_bare(updated_node.value), updated_node.for_in)


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
