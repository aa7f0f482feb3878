"""Run shell lines on rank 0 while the other ranks wait; installs are left to the rule ``installs``.

.. code-block:: diff

    -get_ipython().system('wget -q https://example.com/audio.mp3')
    +ddp.shell("wget -q https://example.com/audio.mp3")
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.ranks import rank_test_above
from nb2ddp.analysis.shell_commands import shell_calls
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Decline, Edit, Finding, Rule
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for shell in shell_calls(facts):
        if shell.is_install or not (
            shell.kind in ("system", "output") or (shell.kind == "cell" and shell.name == "bash")
        ):
            continue
        if shell.kind == "cell" and shell.text:
            # its text is not quoted: `-s TOKEN`
            yield Decline("options of %%bash have no meaning in a script; take them away", shell.call)
            continue
        test = rank_test_above(facts, shell.call)
        if test is not None and not facts.is_after_training(shell.call):
            yield Decline(
                f"`{cst_nodes.one_line(test)}` lets only some ranks reach a command that the "
                "script runs once, on rank 0, by itself; take the condition away",
                shell.call,
            )
            continue
        function = helper(facts, "shell_output" if shell.kind == "output" else "shell")
        yield Edit(
            shell.call,
            "every rank needs the output" if shell.kind == "output" else "runs once, on rank 0",
            partial(cst_nodes.replaced, code=f"{function}({shell.code(facts.bound_names)})"),
        )


rule = Rule("shell-lines", __doc__, find, balanced=True)
