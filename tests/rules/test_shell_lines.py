"""A shell line runs once, on rank 0; its output, where it is used, is there on every rank."""

from __future__ import annotations

import pytest

from nb2ddp.rules.shell_lines import rule
from tests.support.helpers import check_settles

RUN_ONCE = {
    "a command": ("!nvidia-smi", 'ddp.shell("nvidia-smi")\n'),
    "double quotes inside": ('!python -c "print(1)"', "ddp.shell('python -c \"print(1)\"')\n"),
    "both quotes inside": ('!echo "it\'s" x', 'ddp.shell("""echo "it\'s" x""")\n'),
    "indented by two": ("if big:\n  !ls -l  # why\n", 'if big:\n  ddp.shell("ls -l  # why")\n'),
    "in a function": ("def f():\n    !ls\n    return 1\n", 'def f():\n    ddp.shell("ls")\n    return 1\n'),
    "in the background": ("!nohup vllm serve m &", 'ddp.shell("nohup vllm serve m &")\n'),
    "braces of the shell": (
        "!mkdir -p {a,b} && awk '{print $1}' f",
        "ddp.shell(\"mkdir -p {a,b} && awk '{print $1}' f\")\n",
    ),
    "a backslash": ("!grep '\\d' f", "ddp.shell(\"grep '\\\\d' f\")\n"),
    "not ASCII": ("!echo ünï", 'ddp.shell("echo ünï")\n'),
    "called by hand": ('get_ipython().system("ls")', 'ddp.shell("ls")'),
}


@pytest.mark.parametrize(("before", "after"), RUN_ONCE.values(), ids=RUN_ONCE.keys())
def test_a_shell_line_runs_once(before: str, after: str) -> None:
    check_settles(rule, before, after)


def test_a_bash_cell_runs_as_one_script() -> None:
    check_settles(
        rule,
        '%%bash\nfor i in {1..3}; do\n  echo "$i" >> log\ndone\n',
        'ddp.shell("""for i in {1..3}; do\n  echo "$i" >> log\ndone\n""")\n',
    )
