"""Run installs once, before torchrun, in ``setup_env.py``; the script keeps the rest of their cells.

Two ranks that run ``pip`` at the same time break each other's packages. Lines that set state for the
training process (``os.environ[...]``, ``sys.path``) stay where they are.

.. code-block:: diff

     import os
     os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    -get_ipython().system('pip install unsloth')
    +
"""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.analysis import installs
from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Drop, Edit, Finding, Rule
from nb2ddp.source import cst_nodes


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    step = installs.plan(facts)
    for statement in step.dropped:
        yield Drop(statement, "runs once before torchrun, in setup_env.py")
    for statement in step.leftovers:
        yield Drop(statement, "only the installs need it; it runs in setup_env.py", with_comments=True)
    for shell in step.silenced:
        nothing = {"output": "[]", "system": "0"}.get(shell.kind, "None")
        if facts.qualified(shell.call.func) == "subprocess.run":
            nothing = f"{cst_nodes.code_of(shell.call.func)[: -len('.run')]}.CompletedProcess([], 0)"
        why = "runs once before torchrun, in setup_env.py"
        yield Edit.to(shell.call, why, nothing)


rule = Rule("installs", __doc__, find, balanced=True)
