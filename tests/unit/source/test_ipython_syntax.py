"""Cells as Python, and the way back: which line of the notebook each line of the text came from."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator

import pytest

from nb2ddp.jupyter.arguments import ARGUMENTS
from nb2ddp.source.ipython_syntax import runs_nothing, to_python
from tests.support import CORPUS


def numbered(source: str) -> list[tuple[int, str]]:
    """The cell's Python, each line with the line of the notebook that it came from."""
    python = to_python(source)
    lines = python.text.removesuffix("\n").split("\n")
    return [(python.notebook_line(number), line) for number, line in enumerate(lines, start=1)]


@pytest.mark.parametrize(
    "source",
    [
        "",
        "x = 1",
        "x = 1\n",
        "\n\nx = 1\n\n",
        "# only a comment\n",
        'x = "!ls"  # ! and % and what?\n',
        "y = (x\n    % 3)\n",
        "a = b != c\n",
        "text = '''\nno magic here\n'''\n",
        "    # why\nfor x in y:\n    print(x)\n",
        '  # why\ntext = """\n  a: 1\n    b: 2\n"""\n',
        "x = 1   \n\ty = 2\n",  # no Python, and not ours to mend
    ],
)
def test_python_stays_as_it_is(source: str) -> None:
    assert to_python(source).text == source


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "import os\n%env A=1\n!pip install a\n",
            [
                (1, "import os"),
                (2, "get_ipython().run_line_magic('env', 'A=1')"),
                (3, "get_ipython().system('pip install a')"),
            ],
        ),
        (
            "if a:\n    !pip install b\nelse:\n    %pip install c\n",
            [
                (1, "if a:"),
                (2, "    get_ipython().system('pip install b')"),
                (3, "else:"),
                (4, "    get_ipython().run_line_magic('pip', 'install c')"),
            ],
        ),
        (
            "x = 1\nif x:\n    ;\n,print a b\n/print 1\ny = (x\n    / 2)\n;",  # `;` hides the value of a cell
            [
                (1, "x = 1"),
                (2, "if x:"),
                (3, '    ("")'),
                (4, 'print("a", "b")'),
                (5, "print(1)"),
                (6, "y = (x"),
                (7, "    / 2)"),
                (8, '("")'),
            ],
        ),
        (
            "files = !ls\nhere = %pwd\n",
            [
                (1, "files = get_ipython().getoutput('ls')"),
                (2, "here = get_ipython().run_line_magic('pwd', '')"),
            ],
        ),
        ("!!ls\n", [(1, "get_ipython().getoutput('ls')")]),
        (
            "?help\nmodel.train??\nx = 1",
            [
                (1, "get_ipython().run_line_magic('pinfo', 'help')"),
                (2, "get_ipython().run_line_magic('pinfo2', 'model.train')"),
                (3, "x = 1"),
            ],
        ),
        (
            'x = "!ls"\ny = """\n!pip install a\n%env A=1\n"""\n!ls\n',
            [
                (1, 'x = "!ls"'),
                (2, 'y = """'),
                (3, "!pip install a"),
                (4, "%env A=1"),
                (5, '"""'),
                (6, "get_ipython().system('ls')"),
            ],
        ),
        (
            "!pip install a \\\n    b \\\n    c\nx = 1\n",
            [(1, "get_ipython().system('pip install a      b      c')"), (4, "x = 1")],
        ),
        (
            "if a:\n    !pip install a \\\n      b\nx = 1",
            [
                (1, "if a:"),
                (2, "    get_ipython().system('pip install a        b')"),
                (4, "x = 1"),
            ],
        ),
        (
            'text = """\n!pip install a \\\n  b\n"""\n%env A=2\n',
            [
                (1, 'text = """'),
                (2, "!pip install a \\"),
                (3, "  b"),
                (4, '"""'),
                (5, "get_ipython().run_line_magic('env', 'A=2')"),
            ],
        ),
        (
            "\n\n\n%env A=1\n\n\nx = 1\n",
            [(4, "get_ipython().run_line_magic('env', 'A=1')"), (5, ""), (6, ""), (7, "x = 1")],
        ),
        ("    x = 1\n    y = 2\n", [(1, "x = 1"), (2, "y = 2")]),
        (" def f():\n     return 1\nx = f()\n", [(1, "def f():"), (2, "    return 1"), (3, "x = f()")]),
        (" # why\n x = 1\ny = 2\n", [(1, "# why"), (2, "x = 1"), (3, "y = 2")]),
        (
            "\n  if x:\n    !ls\n",
            [(2, "if x:"), (3, "  get_ipython().system('ls')")],
        ),
        (">>> x = 1\n>>> y = 2\n", [(1, "x = 1"), (2, "y = 2")]),
        ("!ls   \n", [(1, "get_ipython().system('ls')")]),
    ],
    ids=[
        "line magic and shell",
        "indented",
        "quoted and called by a sign",
        "assigned",
        "two exclamation marks",
        "help",
        "in strings",
        "continued",
        "continued and indented",
        "continued in a string",
        "blank lines",
        "indented cell",
        "indented first line",
        "indented first line below a comment",
        "indented cell with shell",
        "prompts",
        "trailing spaces",
    ],
)
def test_magics_become_calls(source: str, expected: list[tuple[int, str]]) -> None:
    assert numbered(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "%%capture\n!pip install a\nx = 1\n",
            [(2, "get_ipython().system('pip install a')"), (3, "x = 1")],
        ),
        (
            "#@title Install\n\n%%capture\n!pip install a\n",
            [(1, "#@title Install"), (2, ""), (4, "get_ipython().system('pip install a')")],
        ),
        ("%%capture --no-stderr\nx = 1\n", [(2, "x = 1")]),
        (
            "%%capture out\nx = 1\n",
            [(1, "get_ipython().run_line_magic('capture', 'out')"), (2, "x = 1")],
        ),
        ("%%time\ntrainer.train()\n", [(2, "trainer.train()")]),
        ("%%wandb -h 600\ntrainer.train()\n", [(2, "trainer.train()")]),
        ("%%capture\n%%time\nx = 1\n", [(3, "x = 1")]),
        ("# a page\n%%html\n<b>x = 1</b>\n", [(1, "# a page")]),
        (
            "# why\n%%bash\nls\n",
            [(1, "# why"), (2, "get_ipython().run_cell_magic('bash', '', 'ls\\n')")],
        ),
        ("%%sh\nls\n", [(1, "get_ipython().run_cell_magic('bash', '', 'ls\\n')")]),
        (
            "%%script --no-raise-error false\nx = 1\n",
            [(1, "get_ipython().run_cell_magic('bash', '', 'false')")],
        ),
        (
            "%%script echo skipped\nx = 1\n",
            [(1, "get_ipython().run_cell_magic('bash', '', 'echo skipped')")],
        ),
        (
            "%%script falsetto\nx = 1\n",
            [(1, "get_ipython().run_cell_magic('script', 'falsetto', 'x = 1\\n')")],
        ),
        ("%%!\nls\n", [(1, "get_ipython().run_cell_magic('bash', '', 'ls\\n')")]),
        (
            "%%file a.py\nx = '''\n%env\n'''\n",
            [(1, "get_ipython().run_cell_magic('writefile', 'a.py', \"x = '''\\n%env\\n'''\\n\")")],
        ),
    ],
    ids=[
        "capture",
        "capture behind a comment",
        "capture with options",
        "capture into a name",
        "time",
        "display of a run",
        "both",
        "html",
        "bash",
        "sh",
        "a cell that is skipped",
        "a cell that is skipped with a word",
        "a cell that a program reads",
        "!",
        "file",
    ],
)
def test_cell_magics(source: str, expected: list[tuple[int, str]]) -> None:
    assert numbered(source) == expected


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("%time x = f(1)", "x = f(1)"),
        ("y = %time g(2)", "y = g(2)"),
        ("%timeit -n 10 -r 3 f()", "f();"),
        ("%timeit -q f()", "f();"),
        ('%time f("it\'s")', 'f("it\'s")'),
        ('get_ipython().run_line_magic("time", "x = f()")', "x = f()"),  # as an export has it
        ('get_ipython().run_line_magic("aimport", "string")', "import string"),
        ("%prun f()", "f();"),
        ("t = %timeit -o f()", "t = get_ipython().run_line_magic('timeit', '-o f()')"),
        ("    %time f()", "    f()"),
        ("%time", "get_ipython().run_line_magic('time', '')"),
        ("%time f(", "get_ipython().run_line_magic('time', 'f(')"),
    ],
)
def test_what_a_line_times_is_the_code(line: str, code: str) -> None:
    before = "if a:\n" if line.startswith(" ") else ""
    assert numbered(before + line + "\n")[-1][1] == code


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("%aimport math", "import math"),
        ("    %aimport os.path, math json", "    import os.path, math, json"),
        ("%aimport -math", "get_ipython().run_line_magic('aimport', '-math')"),
        ("%aimport", "get_ipython().run_line_magic('aimport', '')"),
    ],
)
def test_aimport_is_an_import_but_where_it_stops_reloading(line: str, code: str) -> None:
    before = "if True:\n" if line.startswith(" ") else ""
    assert to_python(before + line).text.removesuffix("\n") == before + code


@pytest.mark.parametrize("line", ["%pylab", "%pylab inline", "    %pylab --no-import-all inline"])
def test_pylab_is_the_imports_that_it_stands_for(line: str) -> None:
    before = "if a:\n" if line.startswith(" ") else ""
    code = numbered(before + line + "\n")[-1][1]
    tree = ast.parse(code.strip())
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    bound = {alias.asname or alias.name for node in imports for alias in node.names}
    bound |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert {"numpy", "np", "matplotlib", "plt", "pylab", "mlab", "pyplot", "figsize"} <= bound
    stars = [
        node.module for node in imports if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    ]
    assert stars == ([] if "no-import" in line else ["matplotlib.pylab", "numpy"])  # as IPython has it


def test_an_empty_cell_has_a_first_line() -> None:
    assert to_python("").notebook_line(1) == 1
    assert to_python("%%html\n<b>").notebook_line(1) == 1


def test_a_line_behind_the_end_is_the_last_one() -> None:
    assert to_python("x = 1\n!ls").notebook_line(99) == 2


def corpus_cells() -> Iterator[str]:
    for path in sorted(CORPUS.rglob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8")).get("cells", []):
            if cell["cell_type"] == "code":
                yield "".join(cell["source"])


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
def test_lines_of_real_cells_lead_back_to_themselves() -> None:
    checked = 0
    for source in set(corpus_cells()):
        written = source.split("\n")
        before = 0
        for number, line in numbered(source):
            assert number >= before
            before = number
            if line.strip() and line in written:
                assert written[number - 1] == line, source
                checked += 1
    assert checked > 10_000


def test_a_cell_that_run_ddp_only_shows_is_no_code_of_the_script() -> None:
    python = to_python("# a look\n%%run_ddp --show\ntrainer.train()\n")
    call = "get_ipython().run_cell_magic('run_ddp', '--show', 'trainer.train()\\n')"
    assert python.text == f"# a look\n{call}\n"
    assert [python.notebook_line(line) for line in (1, 2)] == [1, 2]
    assert to_python("%%run_ddp --nproc 2\ntrainer.train()\n").text == "trainer.train()\n"


def test_the_options_with_which_run_ddp_trains_nothing_are_all_known() -> None:
    found = {
        name: "run nothing" in options.get("help", "")
        for names, options in ((a.args, a.kwds) for a in ARGUMENTS)
        for name in names
        if name.startswith("-")
    }
    assert {name for name, nothing in found.items() if nothing} == {"--show", "-h", "--help"}
    assert {name: runs_nothing(f"{name} 2") for name in found} == found
