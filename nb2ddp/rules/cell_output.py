"""The value at the end of a cell is printed, as the notebook shows it.

.. code-block:: diff

     texts = ["one", "two"]
    -display(len(texts))
    -texts[0]
    +print(len(texts))
    +show(texts[0])
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from nb2ddp import cstkit
from nb2ddp.facts import CodeCell, Facts
from nb2ddp.rewrite import Edit, Finding, Need, Options, Rule

# Calls that give nothing to show, or whose result nobody reads.
_SILENT = frozenset(
    "train print display show pprint get_ipython print_trainable_parameters evaluate login notebook_login "
    "empty_cache collect seed manual_seed set_seed clear_output makedirs mkdir append extend insert update "
    "setdefault add filterwarnings".split()
)


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for cell in facts.cells:
        if (value := shown(facts, cell)) is not None:
            show = partial(cstkit.wrapped, function=facts.our("show"))
            yield Need("show")
            yield Edit(value, "a cell's last value is shown", show)
    if "display" not in facts.bound_names:
        for call in facts.calls:
            if isinstance(call.func, cst.Name) and call.func.value == "display":
                yield Edit(call, "only IPython knows display()", _printed)


def shown(facts: Facts, cell: CodeCell) -> cst.BaseExpression | None:
    """The expression whose value the notebook shows below the cell; None where it shows nothing."""
    last = cell.module.body[-1] if cell.module.body else None
    if not isinstance(last, cst.SimpleStatementLine) or not isinstance(last.body[-1], cst.Expr):
        return None
    value = last.body[-1].value
    if isinstance(last.body[-1].semicolon, cst.Semicolon):
        return None  # as people write after a plot
    if isinstance(value, cst.SimpleString | cst.Ellipsis | cst.Yield | cst.Await):
        return None  # a string at the end is a comment, mostly
    if isinstance(value, cst.Call):
        name = facts.qualified(value.func)
        called = facts.method(value) or name.rpartition(".")[2]
        if called in _SILENT or called.startswith(("save_", "push_to_hub")) or name == "os.system":
            return None
        if "get_ipython" in cstkit.code_of(value.func):
            return None
    return value


def _printed(node: cst.CSTNode) -> cst.CSTNode:
    """``print(...)`` of what ``display(...)`` shows; its options are about the notebook."""
    assert isinstance(node, cst.Call)
    for argument in node.args:
        if argument.keyword is not None:
            node = cstkit.without_keyword(node, argument.keyword.value)
    return node.with_changes(func=cst.Name("print"))


rule = Rule("cell-output", __doc__, find)
