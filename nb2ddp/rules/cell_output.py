"""The value at the end of a cell is printed, as the notebook shows it.

.. code-block:: diff

     texts = ["one", "two"]
    -texts[0]
    +show(texts[0])
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp import cstkit
from nb2ddp.facts import Facts
from nb2ddp.rewrite import Edit, Finding, Need, Options, Rule

# Calls that give nothing to show, or whose result nobody reads.
_SILENT = frozenset("train print display show pprint get_ipython print_trainable_parameters evaluate".split())


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for cell in facts.cells:
        if not cell.module.body or cell.source.rstrip().endswith(";"):
            continue
        last = cell.module.body[-1]
        if not isinstance(last, cst.SimpleStatementLine) or not isinstance(last.body[-1], cst.Expr):
            continue
        value = last.body[-1].value
        if isinstance(value, cst.BaseString | cst.Ellipsis | cst.Yield | cst.Await):
            continue
        if isinstance(value, cst.Call):
            name = facts.qualified(value.func) or facts.method(value)
            if name.rpartition(".")[2] in _SILENT or "get_ipython" in cstkit.code_of(value.func):
                continue
            if facts.method(value) in _SILENT or facts.qualified(value.func) == "os.system":
                continue
        yield Need("show")
        show = facts.our("show")
        yield Edit(value, "a cell's last value is shown", lambda node: cstkit.wrapped_call(show, node))


rule = Rule("cell-output", __doc__, find)
