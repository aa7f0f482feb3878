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

import re
from collections.abc import Iterable, Iterator

from nb2ddp.analysis import installs
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.shell_commands import shell_calls, shell_calls_in
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Drop, Edit, Finding, Note
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement

# A package of a pip line, and its version; without one, "" stands for the newest.
_PINNED = re.compile(r"""(?<=[\s"'])([A-Za-z][\w.-]*)(?:\[[\w,]*\])?(==[\w.+]+|)(?=[\s"'])""")


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    step = installs.plan(facts)
    yield from _other_versions(facts, step.slice)
    for shell in (shell for shell in shell_calls(facts) if shell.is_install and facts.scope(shell.call)):
        if not any(facts.runs(top, {shell.call}.__contains__) for top in step.slice):
            yield Note("nothing installs this: call the function in a line that only installs", shell.call)
    yield from (Drop(statement, "runs once before torchrun, in setup_env.py") for statement in step.dropped)
    for statement in step.leftovers:
        yield Drop(statement, "only the installs need it; it runs in setup_env.py", with_comments=True)
    for shell in step.silenced:
        nothing = {"output": "[]", "system": "0"}.get(shell.kind, "None")
        if facts.qualified(shell.call.func) == "subprocess.run":
            nothing = f"{cst_nodes.code_of(shell.call.func)[: -len('.run')]}.CompletedProcess([], 0)"
        yield Edit.to(shell.call, "runs once before torchrun, in setup_env.py", nothing)


def _other_versions(facts: Facts, statements: Iterable[Statement]) -> Iterator[Note]:
    """Note what the notebook installs after training in a version of its own: the step has run it before training."""
    before: dict[str, str] = {}
    for shell in (shell for top in statements for shell in shell_calls_in(facts, top) if shell.is_install):
        for name, version in _PINNED.findall(f"{shell.command} "):
            if not facts.is_after_training(shell.call):
                before[name] = version
            elif before.get(name, version) != version and (version or re.search(" -U | --up", shell.command)):
                why = f"the notebook trains before it installs {name}{version or ' anew'}, the script after"
                yield Note(f"{why}: take the line out, if training is to have the other version", shell.call)
