"""Print the value of a cell's last line, and save its figures, as the notebook shows them below the cell.

.. code-block:: diff

     texts = ["one", "two"]
    -display(texts)
    -texts[0]
    +ddp.show(texts)
    +ddp.show(texts[0])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Edit, Finding, Insert
from nb2ddp.rewriting.runtime_calls import helper


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    draws = facts.once(_drawing)
    ends = ("matplotlib.pyplot.show", "matplotlib.pyplot.close", helper(facts, "save_plots"))

    def shows(call: cst.Call) -> bool:
        return facts.qualified(call.func) in ends

    for cell in facts.cells:
        body = cell.module.body
        drawn = [place for place, statement in enumerate(body) if facts.runs(statement, draws)]
        if drawn and not any(facts.runs(statement, shows) for statement in body[drawn[-1] :]):
            last = facts.statement(cell.module.body[-1])
            why = "the notebook shows a cell's figures at its end"
            yield Insert(last, "after", f"{helper(facts, 'save_plots')}()", why)
        for value in () if _HIDES.match(cell.source) else facts.shown(cell):
            yield Edit.inside(value, "a cell's last value is shown", helper(facts, "show"))
    for call in facts.calls:
        name = facts.qualified(call.func)
        unbound = name == "display" and name not in facts.bound_names
        if unbound or (name.startswith("IPython.") and name.endswith(".display")):
            yield Edit.to(call.func, "what is displayed is printed, or saved", helper(facts, "show"))


_HIDES = re.compile(r"\s*%%capture(?!.*--no-display)")  # what a cell shows
# Methods that draw, whatever they belong to, where matplotlib or pandas is imported.
_PLOTS = frozenset("plot hist scatter bar barh imshow boxplot pie fill_between errorbar contourf".split())
_DRAWS = re.compile(r"(?<!mat)plot|show|draw|hist(?!or)|scatter|semilog|visuali[sz]e")
_DRAWS_NOTHING = re.compile(
    r"matplotlib\.pyplot\.(?:style\.|rc|switch_backend|ion|ioff|close|get_|show)|seaborn\.(?:set|load)"
)


def _drawing(facts: Facts) -> Callable[[cst.Call], bool]:
    """Return a test for calls that draw a figure."""
    named = any(map(facts.imports_of, ("matplotlib", "seaborn")))

    def draws(call: cst.Call) -> bool:
        name = facts.qualified(call.func)
        if name.startswith(("matplotlib.pyplot.", "seaborn.")):
            return _DRAWS_NOTHING.match(name) is None
        if facts.called_functions(call):
            return False
        if facts.is_of_import(call.func):  # it may draw with matplotlib
            of_others = name.partition(".")[0] not in libraries.COMPUTING_PACKAGES | {"plotly"}
            shows = isinstance(facts.parent(call), cst.Expr) or of_others  # np.histogram() gives numbers
            return shows and _DRAWS.search(name.rpartition(".")[2]) is not None
        return facts.method(call) in _PLOTS and (named or facts.comes_from(call.func, "pandas"))

    return draws
