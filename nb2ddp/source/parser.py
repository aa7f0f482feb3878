"""Parse Python with LibCST. Whatever LibCST raises becomes a SyntaxError with a line: it has faults of its own."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings

import libcst as cst
from libcst import matchers

_UNREAD = "LibCST, the parser that nb2ddp uses, fails on this, valid or not; write it in another way"
_LAZY = "lazy imports (Python 3.15) are not followed here; take the word lazy away"
_LAZY_IMPORT = re.compile(r"^[ \t]*lazy[ \t]+(?:import|from)\b", re.MULTILINE)
_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_SIZES, _MOST_LINES = (1, 2, 4, 8, 16, 32), 5000  # lines that are parsed once more to find the place


class UnreadError(SyntaxError):
    """A reason why code is not read that is a sentence of its own, ``msg``: the code may be valid."""


def parse_module(text: str) -> cst.Module:
    """Return the tree of a text.

    Raises:
        UnreadError: LibCST fails on it, or it holds syntax that is not followed.
        SyntaxError: it is not valid Python.
        RecursionError, MemoryError: it is nested too deeply.
    """
    try:
        module = cst.parse_module(text)
    except cst.ParserSyntaxError as error:
        known = _with_spaces(text)
        if known is not None and known != text:
            return parse_module(known)
        why = SyntaxError("the parser stumbles over it") if known is None else UnreadError(_UNREAD)
        why.lineno = error.raw_line
        raise why from None
    except cst.CSTValidationError as error:
        raise SyntaxError(str(error), ("cell", _line(text, type(error)), None, None)) from None
    except (RecursionError, MemoryError):
        raise
    except BaseException as error:
        if not _is_fault(error):
            raise
        raise UnreadError(_UNREAD, ("cell", _line(text, type(error)), None, None)) from None
    lazy = _LAZY_IMPORT.search(text)
    if lazy is not None and matchers.findall(module, matchers.MatchIfTrue(_is_lazy_import)):
        raise UnreadError(_LAZY, ("cell", text.count("\n", 0, lazy.end()) + 1, None, None))
    return module


def _with_spaces(text: str) -> str | None:
    """Return a text with spaces for the tabs that lines begin with, which LibCST mixes up, where Python reads the same.

    Elsewhere the text itself; None where Python reads neither.
    """
    spaced = _INDENT.sub(lambda indent: indent[0].expandtabs(8), text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an escape that the user's strings should not have is theirs to see
        try:
            trees = [ast.dump(ast.parse(each)) for each in (text, spaced)]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return spaced if trees[0] == trees[1] else text


def _is_fault(error: BaseException) -> bool:
    """Return whether it comes of the text: a panic of LibCST's part in Rust is no Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _line(text: str, kind: type[BaseException]) -> int:
    """Return the line of the fewest lines on which LibCST fails in the same way; 1 where no few lines do."""
    lines = text.split("\n")
    for size in _SIZES if len(lines) <= _MOST_LINES else ():
        for start in range(len(lines) - size + 1):
            try:
                cst.parse_module(textwrap.dedent("\n".join(lines[start : start + size])))
            except BaseException as error:
                if isinstance(error, kind):
                    return start + 1
                if not _is_fault(error):
                    raise
    return 1


def _is_lazy_import(node: object) -> bool:
    return type(node).__name__ in ("LazyImport", "LazyImportFrom")
