"""Run shell lines on rank 0 while the other ranks wait; installs are left to the rule ``installs``.

A login that asks for a token is left out, because the library reads it from the environment.

.. code-block:: diff

    -get_ipython().system('wget -q https://example.com/audio.mp3')
    +ddp.shell("wget -q https://example.com/audio.mp3")
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.shell_commands import shell_calls
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Decline, Drop, Edit, Finding, Note
from nb2ddp.rewriting.runtime_calls import helper

# Commands that ask for a token, where none is given; and the variable from which the library reads it.
_LOGIN = re.compile(r"^\s*(?:huggingface-cli|hf\s+auth|wandb)\s+login(?!.*(?:--token|\S*[{$]|\s\w{20,}))")
_TOKENS = {"huggingface": "HF_TOKEN", "hf": "HF_TOKEN", "wandb": "WANDB_API_KEY"}


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for shell in shell_calls(facts):
        if shell.is_install or not shell.is_shell:
            continue
        if found := _LOGIN.search(shell.text if shell.kind != "cell" else ""):
            variable = next(name for start, name in _TOKENS.items() if start in found[0])
            why = f"this asks for a token at the keyboard, which a script has not: set {variable} in its environment"
            if (line := facts.line_of(shell.call)) is not None:
                yield Drop(line, why, comment=f"a script reads the token from {variable}")
                yield Note(why, shell.call)
                continue
        if shell.kind == "cell" and shell.text:
            # its text is not quoted: `-s TOKEN`
            why = "a script has no options of %%bash: write arguments into its text, or `lines = !command` for --out"
            yield Decline(why, shell.call)
            continue
        function = helper(facts, "shell_output" if shell.kind == "output" else "shell")
        why = "every rank needs the output" if shell.kind == "output" else "runs once, on rank 0"
        yield Edit.to(shell.call, why, f"{function}({shell.code(facts.names_at(shell.call))})")
