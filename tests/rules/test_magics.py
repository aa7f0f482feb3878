"""Magics become the Python they stand for; those about the display go; unknown ones are declined."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nb2ddp.rules.magics import rule
from tests.support.helpers import apply, check_rewritten, check_settles, check_untouched

LEFT_ALONE = {
    "Python": "x = 5 % 3",
    "a shell line": "!ls",
    "an install": "%pip install unsloth",
    "a text that looks like a magic": 'text = """\n%env A=1\n"""',
    "a cell that is timed": "%%time\nx = 1",
    "a captured cell": "%%capture\nx = 1",
    "a captured cell below its title": "#@title Install\n%%capture\nx = 1",
    "a bash cell": "%%bash\nls",
}

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
        'x = 1; os.environ["A"] = "1"; y = 2',
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

DROPPED = {
    "plots": ("%matplotlib inline\nx = 1\n", "x = 1\n"),
    "extensions": ("%load_ext autoreload\n%autoreload 2\nx = 1\n", "x = 1\n"),
    "help": ("len?\nx = 1\n", "x = 1\n"),
    "a variable shown": ("%env A\nx = 1\n", "x = 1\n"),
    "alone in a block": ("if big:\n  %matplotlib inline\n", "if big:\n  pass\n"),
    "with a comment above": ("# plots\n%matplotlib inline\nx = 1\n", "# plots\nx = 1\n"),
    "captured output that nobody reads": ("%%capture out\nx = 1\n", "x = 1\n"),
    "captured output under a name used for more": (
        "%%capture out\nx = 1\nout = model(x)\nprint(out)\n",
        "x = 1\nout = model(x)\nprint(out)\n",
    ),
    "the import of get_ipython": ("from IPython import get_ipython\nx = 1\n", "x = 1\n"),
    "the import of get_ipython among others": (
        "from IPython import get_ipython, version_info\nx = 1\n",
        "from IPython import version_info\nx = 1\n",
    ),
    "the import of get_ipython, last": (
        "from IPython import (\n    version_info,\n    get_ipython\n)\nx = 1\n",
        "from IPython import (\n    version_info\n)\nx = 1\n",
    ),
    "the import of get_ipython on a line with more": (
        "import os; from IPython import get_ipython; x = 1",
        "import os; pass; x = 1",
    ),
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

ASKED = {
    "as text": ('if "colab" in str(get_ipython()):\n    x = 1', 'if "colab" in str(None):\n    x = 1'),
    "whether there is one": ("if get_ipython():\n    x = 1", "if None:\n    x = 1"),
    "its class": (
        "name = get_ipython().__class__.__name__",
        "name = None.__class__.__name__",
    ),
}

DECLINED = {
    "an unknown magic": ("%lprun -f f f()", "%lprun"),
    "an unknown cell magic": ("%%cython\nx", "%%cython"),
    "another notebook's code": ("%run other.ipynb", "%run"),
    "the folder before": ("%cd -", "%cd -"),
    "the value of a magic": ("files = %ls", "%ls"),
    "captured output that is read": ("%%capture out\nx = 1\nprint(out)", "%%capture keeps in out"),
    "the kernel": ("get_ipython().kernel.do_shutdown(True)", "get_ipython().kernel"),
    "code as text": ('get_ipython().run_cell("x = 1")', "get_ipython().run_cell"),
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE.keys())
def test_what_is_no_magic_of_the_run_is_left_alone(source: str) -> None:
    result = check_untouched(rule, source)
    assert not result.declined


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


@pytest.mark.parametrize(("before", "after"), DROPPED.values(), ids=DROPPED.keys())
def test_what_is_for_the_notebook_alone_goes(before: str, after: str) -> None:
    result = apply(rule, before)
    assert result.code[1].lstrip("\n") == after
    assert result.changes
    assert not result.declined


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


@pytest.mark.parametrize(("before", "after"), ASKED.values(), ids=ASKED.keys())
def test_a_script_says_that_it_is_no_notebook(before: str, after: str) -> None:
    check_settles(rule, before, after)


@pytest.mark.parametrize(("source", "named"), DECLINED.values(), ids=DECLINED.keys())
def test_what_has_no_python_is_declined_by_name(source: str, named: str) -> None:
    [decline] = apply(rule, source).declined
    assert named in decline.why
    assert decline.place is not None
