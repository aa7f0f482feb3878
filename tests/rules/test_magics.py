"""Magics become the Python they stand for; those about the display go; unknown ones are declined."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nb2ddp.jupyter import history
from nb2ddp.rules import magics
from nb2ddp.rules.magics import rule
from tests.support.helpers import apply, check_rewritten, check_settles

ENV = {
    "with =": ("%env A=1", 'os.environ["A"] = "1"\n'),
    "with a space": ("%env A 1", 'os.environ["A"] = "1"\n'),
    "spaces around =": ("%env HF_HOME = /tmp/x", 'os.environ["HF_HOME"] = "/tmp/x"\n'),
    "set_env": ("%set_env A=b=c", 'os.environ["A"] = "b=c"\n'),
    "quotes, which IPython keeps": ('%env A="x y"', 'os.environ["A"] = \'"x y"\'\n'),
    "a variable": ('d = "x"\n%env A={d}/y\n', 'd = "x"\nos.environ["A"] = f"{d}/y"\n'),
    "under an if indented by two": ("if big:\n  %env A=1\n", 'if big:\n  os.environ["A"] = "1"\n'),
    "comments around": ("# first\n%env A=1\n# then\n", '# first\nos.environ["A"] = "1"\n# then\n'),
    "called by hand, with more on the line": (
        "x = 1; get_ipython().run_line_magic('env', 'A=1'); y = 2",
        'x = 1\nos.environ["A"] = "1"\ny = 2',
    ),
    "its value used": ("home = %env HOME", 'home = os.environ["HOME"]\n'),
}

FOLDERS = {
    "a folder": ("%cd /tmp", 'os.chdir("/tmp")\n'),
    "quietly": ("%cd -q /tmp", 'os.chdir("/tmp")\n'),
    "quoted": ('%cd "my folder"', 'os.chdir("my folder")\n'),
    "home": ("%cd", 'os.chdir(os.path.expanduser("~"))\n'),
    "below home": ("%cd ~/x", 'os.chdir(os.path.expanduser("~/x"))\n'),
    "a variable": ('d = "x"\n%cd {d}\n', 'd = "x"\nos.chdir(f"{d}")\n'),
    "where am I": ("here = %pwd", "here = os.getcwd()\n"),
}


COMMANDS = {
    "ls": ("%ls -l", 'ddp.shell("ls -l")\n'),
    "mkdir": ("%mkdir -p out", 'ddp.shell("mkdir -p out")\n'),
    "a list of packages": ("%pip list", 'ddp.shell("pip list")\n'),
}

FILES = {
    "written": (
        '%%writefile train.py\nprint("a\\n")\n',
        'ddp.write_file("train.py", """print("a\\\\n")\n""")\n',
    ),
    "appended": ("%%writefile -a log.txt\none\n", 'ddp.write_file("log.txt", """one\n""", "a")\n'),
    "by its other name, quoted": ('%%file "my file.txt"\nx', 'ddp.write_file("my file.txt", "x")\n'),
    "with triple quotes inside": (
        '%%writefile a.py\n"""Doc."""\nx\n',
        'ddp.write_file("a.py", \'\'\'"""Doc."""\nx\n\'\'\')\n',
    ),
}


@pytest.mark.parametrize(("before", "after"), ENV.values(), ids=ENV.keys())
def test_env_sets_the_environment(before: str, after: str) -> None:
    check_settles(rule, before, after)


def test_a_comment_that_ipython_keeps_in_a_value_is_noted() -> None:
    result = check_rewritten(rule, "%env A=1 # one", 'os.environ["A"] = "1 # one"\n')
    [note] = result.notes
    assert "part of A's value" in note.why


@pytest.mark.parametrize(("before", "after"), FOLDERS.values(), ids=FOLDERS.keys())
def test_cd_changes_the_folder(before: str, after: str) -> None:
    check_settles(rule, before, after)


@pytest.mark.parametrize(("before", "after"), COMMANDS.values(), ids=COMMANDS.keys())
def test_a_magic_that_is_a_command_runs_once(before: str, after: str) -> None:
    check_settles(rule, before, after)


@pytest.mark.parametrize(("before", "after"), FILES.values(), ids=FILES.keys())
def test_a_file_is_written_whole_and_once(before: str, after: str) -> None:
    check_settles(rule, before, after)


def test_the_written_file_is_the_cell_byte_for_byte() -> None:
    body = 'import os\n\n\tx = "a\\tb" + \'\'\'c\'\'\' + """d"""\nprint(f"{x}")  # ünï \\\n\n'
    written: list[str] = []
    script = apply(rule, f"%%writefile a.py\n{body}").code[1]
    ddp = SimpleNamespace(write_file=lambda path, text: written.append(text))
    exec(script, {"ddp": ddp})
    assert written == [body]


def test_the_name_of_a_result_is_that_of_the_magic() -> None:
    assert magics._RESULT == history.RESULT_NAME
