"""A shell line runs once, on rank 0; its output, where it is used, is there on every rank."""

from __future__ import annotations

import pytest

from nb2ddp.rules.shell_lines import rule
from tests.support.helpers import apply, check_settles, check_untouched

LEFT_ALONE = {
    "Python": "x = 1",
    "an install": "!pip install unsloth",
    "a text that looks like a shell line": 'text = """\n!ls\n"""',
    "a magic": "%env A=1",
    "os.system, which rank-zero sees to": 'import os\nos.system("ls")',
}

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

INTERPOLATED = {
    "a variable in braces": ('url = "u"\n!wget {url}\n', 'url = "u"\nddp.shell(f"wget {url}")\n'),
    "a variable with a dollar": ('url = "u"\n!wget $url\n', 'url = "u"\nddp.shell(f"wget {url}")\n'),
    "one that only the shell knows among them": (
        'url = "u"\n!wget $url -P $HOME\n',
        'url = "u"\nddp.shell("wget $url -P $HOME")\n',
    ),
    "a name that only the shell knows": ("!echo {url}\n", 'ddp.shell("echo {url}")\n'),
    "an expression": ('d = {"a": 1}\n!echo {d["a"]}\n', 'd = {"a": 1}\nddp.shell(f\'echo {d["a"]}\')\n'),
    "doubled braces": ("x = 1\n!echo {{x}} $$\n", 'x = 1\nddp.shell("echo {x} $$")\n'),
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE.keys())
def test_what_is_no_shell_line_of_the_run_is_left_alone(source: str) -> None:
    check_untouched(rule, source)


@pytest.mark.parametrize(("before", "after"), RUN_ONCE.values(), ids=RUN_ONCE.keys())
def test_a_shell_line_runs_once(before: str, after: str) -> None:
    check_settles(rule, before, after)


@pytest.mark.parametrize(("before", "after"), INTERPOLATED.values(), ids=INTERPOLATED.keys())
def test_variables_of_the_notebook_are_expanded_as_ipython_does(before: str, after: str) -> None:
    check_settles(rule, before, after)


def test_output_that_is_used_is_there_on_every_rank() -> None:
    check_settles(
        rule,
        "files = !ls data\nfor file in files:\n    print(file)\n",
        'files = ddp.shell_output("ls data")\nfor file in files:\n    print(file)\n',
    )


def test_a_bash_cell_runs_as_one_script() -> None:
    check_settles(
        rule,
        '%%bash\nfor i in {1..3}; do\n  echo "$i" >> log\ndone\n',
        'ddp.shell("""for i in {1..3}; do\n  echo "$i" >> log\ndone\n""")\n',
    )


def test_a_bash_cell_is_not_expanded_by_ipython() -> None:
    assert apply(rule, 'i = "1"', "%%bash\necho $i {i}").code[2] == 'ddp.shell("echo $i {i}")\n'


def test_options_of_a_bash_cell_are_declined() -> None:
    [decline] = check_untouched(rule, "%%bash --out listing\nls").declined
    assert decline.why.startswith("%%bash --out listing")
