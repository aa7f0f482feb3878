"""Whatever LibCST raises at a cell becomes one sentence, with the cell and the line."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path
from typing import Any

import libcst
import pytest

from nb2ddp.conversion.pipeline import convert_notebook
from nb2ddp.source.notebook import Cell, Notebook
from nb2ddp.source.parser import UnreadError, parse_module


def _exceptions() -> list[type[BaseException]]:
    """Return the exceptions that LibCST defines, and those that its part in Rust may raise."""
    for module in pkgutil.iter_modules(libcst.__path__, "libcst."):
        if not module.name.endswith(("tool", "tests", "testing")):
            importlib.import_module(module.name)
    kinds: list[type[BaseException]] = []
    waiting: list[type[BaseException]] = [Exception]
    while waiting:
        kind = waiting.pop()
        waiting += type.__subclasses__(kind)
        if kind.__module__.startswith("libcst"):
            kinds.append(kind)
    panic = type("PanicException", (BaseException,), {})
    return [
        *dict.fromkeys(kinds),
        panic,
        SystemError,
        TypeError,
        AttributeError,
        KeyError,
        UnicodeEncodeError,
    ]


def _made(kind: type[BaseException]) -> BaseException:
    if kind is libcst.ParserSyntaxError:
        return libcst.ParserSyntaxError("no", lines=["x"], raw_line=2, raw_column=0)
    return kind.__new__(kind, "Logic error!")


def test_libcst_has_exceptions_of_its_own() -> None:
    assert {"CSTLogicError", "ParserSyntaxError", "CSTValidationError"} <= {k.__name__ for k in _exceptions()}


@pytest.mark.parametrize("kind", _exceptions(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("newer", [False, True], ids=["older", "newer"])
def test_an_exception_at_a_cell_is_a_sentence(
    kind: type[BaseException], newer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``newer``: the running Python refuses the cell, so that LibCST is asked in another place."""
    own = libcst.parse_module

    def parse(text: str, *more: Any) -> libcst.Module:
        if "BAD" in text:
            raise _made(kind)
        return own(text, *more)

    monkeypatch.setattr(libcst, "parse_module", parse)
    bad = "import os\nBAD = t'{os}'" if newer else "import os\nBAD = os"
    cells = (Cell("code", "import torch", 1), Cell("markdown", "# text", 0), Cell("code", bad, 2))
    result = convert_notebook(Notebook(Path("x.ipynb"), cells, "python"))
    assert result.status == "declined"
    (change,) = result.declined
    assert change.place is not None
    assert change.place.cell == 2
    assert change.place.line == 2
    assert "report" not in change.why


def test_tabs_before_spaces_are_read_as_python_reads_them() -> None:
    cell = "def f(x):\n\t  y = '\t1'\n\t  if x:\n\t\t    y = 2\n\t  return y\n"
    module = parse_module(cell)
    assert ast.dump(ast.parse(module.code)) == ast.dump(ast.parse(cell))


def test_valid_code_that_libcst_cannot_read_is_not_called_invalid() -> None:
    cell = 'def f(x):\n\t  y = """\n\ta"""\n\t  if x:\n\t\t    y = 2\n\t  return y\n'
    ast.parse(cell)
    with pytest.raises(UnreadError, match="valid or not"):
        parse_module(cell)
