"""What rule tests share: exact text before and after, compiled and converted twice."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from nb2ddp.analysis.facts import Facts
from nb2ddp.conversion.pipeline import Conversion, convert_notebook
from nb2ddp.options import Options
from nb2ddp.rewriting.engine import Rewritten, rewrite
from nb2ddp.rewriting.findings import Rule
from nb2ddp.rewriting.runtime_calls import module_name
from nb2ddp.source import ipython_syntax
from nb2ddp.source.cells import parse_cell
from nb2ddp.source.notebook import notebook_of
from tests.support.runtime_calls import check_uses


def facts_of(*cells: str, sharded: bool = False) -> Facts:
    parsed = []
    for number, source in enumerate(cells, start=1):
        parsed.append(parse_cell(number, source))
    return Facts.that_train(parsed, sharded=sharded)


def apply(rule: Rule, *cells: str, options: Options | None = None) -> Rewritten:
    """Apply one rule; what it calls of the runtime module is there, and takes what it is given."""
    options = options or Options()
    facts = facts_of(*cells, sharded=options.strategy == "fsdp")
    result = rewrite(facts, [rule], options)
    for code in result.code.values():
        check_uses(code, module_name(facts))
    return result


def check_rewritten(rule: Rule, before: str, after: str, *, options: Options | None = None) -> Rewritten:
    """``before``, one cell, becomes exactly ``after``."""
    before, after = dedent(before), dedent(after)
    result = apply(rule, before, options=options)
    assert result.code[1] == after
    compile(after, "after", "exec")
    assert all(change.why and change.place for change in result.changes)
    return result


def check_settles(rule: Rule, before: str, after: str, *, options: Options | None = None) -> Rewritten:
    """`check_rewritten`, and a second pass over ``after`` changes nothing more."""
    result = check_rewritten(rule, before, after, options=options)
    assert apply(rule, dedent(after), options=options).code[1] == dedent(after)
    return result


def check_untouched(rule: Rule, source: str, *, options: Options | None = None) -> Rewritten:
    """``source``, one cell, stays as it is, byte for byte."""
    source = dedent(source)
    result = apply(rule, source, options=options)
    assert result.code[1] == ipython_syntax.to_python(source).text
    assert not result.changes
    return result


def notebook(*cells: str) -> nbformat.NotebookNode:
    """A notebook of code cells; a cell that starts with ``md:`` is text."""
    node: nbformat.NotebookNode = new_notebook(
        cells=[new_markdown_cell(c[3:]) if c.startswith("md:") else new_code_cell(dedent(c)) for c in cells]
    )
    return node


def converted(*cells: str, **options: object) -> Conversion:
    """Convert a notebook made of these cells, through the whole pipeline."""
    return convert_notebook(notebook_of(Path("test.ipynb"), notebook(*cells)), **options)  # type: ignore[arg-type]
