"""Print the value of a cell's last line, as the notebook shows it.

.. code-block:: diff

     texts = ["one", "two"]
    -display(len(texts))
    -texts[0]
    +print(len(texts))
    +ddp.show(texts[0])
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Edit, Finding, Rule
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for cell in facts.cells:
        if (value := facts.shown(cell)) is not None:
            show = partial(cst_nodes.wrapped, function=helper(facts, "show"))
            yield Edit(value, "a cell's last value is shown", show)
    if "display" not in facts.bound_names:
        for call in facts.calls:
            if isinstance(call.func, cst.Name) and call.func.value == "display":
                yield Edit(call, "only IPython knows display()", _printed)


def _printed(node: cst.CSTNode) -> cst.CSTNode:
    """Return ``print(...)`` with the arguments of ``display(...)``, without its keywords."""
    assert isinstance(node, cst.Call)
    for argument in node.args:
        if argument.keyword is not None:
            node = cst_nodes.without_keyword(node, argument.keyword.value)
    return node.with_changes(func=cst.Name("print"))


rule = Rule("cell-output", __doc__, find, balanced=True)
