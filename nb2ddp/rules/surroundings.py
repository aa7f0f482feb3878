"""What only a notebook has around it: a page to show things on, a keyboard, Colab's services.

.. code-block:: diff

     import matplotlib.pyplot as plt
    -from google.colab import userdata
    -token = userdata.get("HF_TOKEN")
    +token = os.environ.get("HF_TOKEN")
     plt.plot(lengths)
    -plt.show()
    +save_plots()
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from nb2ddp import cstkit
from nb2ddp.facts import Facts
from nb2ddp.rewrite import Decline, Drop, Edit, Finding, Need, Note, Options, Rule

_COLAB = "google.colab"
_KEYBOARD = frozenset({"input", "getpass.getpass"})


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for statement in facts.imports_of("google"):
        if (
            isinstance(statement, cst.ImportFrom)
            and _is_colab(statement)
            and _is_whole_line(facts, statement)
        ):
            yield Drop(facts.statement(statement), "Colab's services are not there in a script")
    for call in facts.live_calls:
        name = facts.qualified(call.func)
        if name == "matplotlib.pyplot.show":
            yield Need("save_plots")
            code = f"{facts.our('save_plots')}()"
            yield Edit(call, "plots go to files", partial(cstkit.replaced, code=code))
        elif name in _KEYBOARD and name not in facts.bound_names:
            yield from _keyboard(facts, call, name)
        elif name.startswith(f"{_COLAB}."):
            yield from _colab(facts, call, name.removeprefix(f"{_COLAB}."))
        elif name == "torch.cuda.device_count":
            yield Note("this counts the GPUs of the machine; each rank uses one of them", call)


def _keyboard(facts: Facts, call: cst.Call, name: str) -> Iterator[Finding]:
    if facts.is_after_training(call):
        yield Note(f"{name}() has no keyboard in a script: it ends the run here, after training", call)
    else:
        yield Decline(
            f"{name}() waits for a keyboard, and a run of several processes has none; write the value here "
            "or read it from os.environ",
            call,
        )


def _colab(facts: Facts, call: cst.Call, name: str) -> Iterator[Finding]:
    statement = facts.statement(call)
    is_alone = isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Expr)
    if name == "userdata.get" and len(call.args) == 1:
        key = cstkit.code_of(call.args[0].value)
        read = partial(cstkit.replaced, code=f"os.environ.get({key})")
        yield Edit(call, "secrets come from the environment", read)
    elif name in ("drive.mount", "drive.flush_and_unmount", "files.download", "output.clear") and is_alone:
        yield Drop(statement, f"{name} is Colab's; a script has its files where it runs")
    else:
        yield Decline(f"{_COLAB}.{name} is not there in a script; write what it is to do in Python", call)


def _is_colab(node: cst.ImportFrom) -> bool:
    return node.module is not None and cstkit.code_of(node.module).startswith(_COLAB)


def _is_whole_line(facts: Facts, node: cst.ImportFrom) -> bool:
    line = facts.statement(node)
    return isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1


rule = Rule("surroundings", __doc__, find)
