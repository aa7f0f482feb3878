"""Shell lines: which of them install, and how IPython's expansion of variables is written in Python."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.utils.text import DollarFormatter

from nb2ddp.analysis.shell_commands import shell_calls
from nb2ddp.source.shell_text import command_code, is_install, literal
from tests.support.helpers import facts_of

INSTALLS = [
    "pip install unsloth",
    'pip install --no-deps "trl<0.9" peft',
    "pip -q install a",
    "pip3 install -U a",
    "pip3.11 install a",
    "  pip install a",
    "/opt/conda/bin/pip install a",
    "python -m pip install a",
    "/usr/bin/python3.11 -m pip install a",
    "{sys.executable} -m pip install a",
    "uv pip install --system a",
    "uv sync",
    "conda install -y a",
    "mamba install a",
    "apt-get update",
    "apt-get -qq -y install ffmpeg",
    "sudo apt install ffmpeg",
    "sudo -E apt-get -y install ffmpeg",
    "DEBIAN_FRONTEND=noninteractive apt-get install -y ffmpeg",
    'FORCE_CMAKE=1 CMAKE_ARGS="-DA=on -DB=off" pip install llama-cpp-python',
    "dpkg -i a.deb",
    "npm install -g a",
    "brew install a",
    "python setup.py install",
    "pip uninstall -y a",
    "yes | pip uninstall a",
    "pip3-autoremove torch -y",
    "curl -LsSf https://astral.sh/uv/install.sh | sh",
    "curl -fsSL https://ollama.com/install.sh | sh",
    "pip install -r requirements.txt > /dev/null 2>&1",
    "git clone https://example.com/a && cd a && pip install -e .",
    "cd a; pip install .",
    "[ -d a ] || pip install a",
    "if [ -d a ]; then pip install a; fi",
    "for p in a b; do pip install $p; done",
    "(pip install a)",
    "time pip install a",
    "nohup pip install a &",
    "env A=1 pip install a",
]
OTHERS = [
    "ls install",
    "echo pip install a",
    "cat install.sh",
    "wget https://example.com/audio.mp3",
    "wget https://example.com/installation_guide.pdf",
    "git clone https://example.com/pip",
    "nvidia-smi",
    "pip list | grep install",
    "pip freeze",
    "pip show a",
    "python -m pip --version",
    "python train.py --install no",
    "apt-cache search a",
    "conda list",
    "uv run a.py",
    "npm run build",
    "huggingface-cli login",
    "./install_data a",
    "",
]


@pytest.mark.parametrize("command", INSTALLS)
def test_a_command_that_installs(command: str) -> None:
    assert is_install(command)


@pytest.mark.parametrize("command", OTHERS)
def test_a_command_that_does_not(command: str) -> None:
    assert not is_install(command)


def test_an_install_over_several_lines_of_a_script() -> None:
    assert is_install("cd /tmp\npip install \\\n  a\n")
    assert not is_install("mkdir data\necho \\\n  pip install a\n")


# What a notebook may have bound.
VALUES: dict[str, Any] = {
    "x": "X",
    "n": 3,
    "packages": ["torch", "trl"],
    "torch": SimpleNamespace(__version__="2.9.1+cu128"),
    "options": {"a": "A", "b": {"c": "C"}},
    "quoted": "both ' and \"",
}
COMMANDS = [
    "ls",
    "pip install {x}",
    'pip install "torch=={x}"',
    "echo '{x}' > {x}.txt",
    "pip install {' '.join(packages)}",
    'pip install {" ".join(packages)}',
    "pip install {packages[0]} {packages[0:1]}",
    "pip install {torch.__version__.split('+')[0]}",
    "echo {x!r} {n!s} {x!a}",
    "echo {n + 1} {len(packages)} { x } {x }",
    "echo {[p for p in packages if p]}",
    "echo { {'a': 1} }",
    "echo {x if n else packages}",
    "echo {options['a']} {options[\"b\"]['c']}",
    "echo {quoted}",
    "echo {'\\n'.join(packages)} end",
    "{'\\n'.join(packages)!r}",
    "echo {(lambda: 1)()}",
    "echo {list(map(lambda p: p, packages))}",
    "echo {(y := 2)}",
    "echo {\"a\" + 'b'} ''' \"\"\" {x}",
    "echo $x $n",
    "echo $x/$n",
    "echo $x.upper",
    "echo '$x' $x",
    "echo $torch.__version__",
    "echo $$x $n",
    "echo {{x}} {n}",
    "echo ${x}",
    "echo $(ls {x})",
    "echo a\\nb\\t{x}",
    "echo {x} \\\\ \\' \\\"",
    "echo tab\t{x} é \x07 \u200b",
    "echo {x}\necho {n}\n",
    'echo "{x}"',
    'echo "',
    "echo '\"",
    "echo '\"\n",
    "echo ends with \\",
    # what IPython leaves to the shell, all of the line
    "cp a.{txt,md} {x}",
    "mkdir {1..3}",
    "echo $HOME",
    "echo $HOME/{x}",
    "echo ${HOME} {x}",
    "awk '{print $1}' {x}",
    "find . -name {x} -exec rm {} \\;",
    "curl -d '{\"a\": 1}' {x}",
    "echo {unknown} {x}",
    "echo {x",
    "echo }} {{ } {x}",
    "echo {x:>3}",
    "echo {x=}",
    "echo {}",
]


def as_ipython_expands(command: str) -> str:
    """What ``get_ipython().system`` gives to the shell (InteractiveShell.var_expand)."""
    try:
        return DollarFormatter().vformat(command, [], VALUES)
    except Exception:
        return command


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_expanded_as_ipython_does(command: str) -> None:
    code = command_code(command, VALUES)
    assert eval(code, dict(VALUES)) == as_ipython_expands(command)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_code_is_python_3_11(command: str) -> None:
    ast.parse(command_code(command, VALUES), feature_version=(3, 11))
    if command_code(command, VALUES).startswith("f"):  # quotes and backslashes inside came with 3.12
        assert not any(
            "\\" in ast.unparse(node.value)
            for node in ast.walk(ast.parse(command_code(command, VALUES)))
            if isinstance(node, ast.FormattedValue)
        )


@pytest.mark.parametrize("command", COMMANDS)
def test_names_that_the_notebook_does_not_bind_are_the_shells(command: str) -> None:
    tree = ast.parse(command_code(command, ()))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not names & set(VALUES)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("ls -l", '"ls -l"'),
        ('echo "a"', "'echo \"a\"'"),
        ("echo \"a\" 'b'", '"""echo "a" \'b\'"""'),
        ("pip install {x}", 'f"pip install {x}"'),
        ("echo '{x}' \"", "f'''echo '{x}' \"'''"),
        ("echo a\necho b\n", '"""echo a\necho b\n"""'),
        ("a\\b", '"a\\\\b"'),
    ],
)
def test_the_literal_is_the_most_readable_one(command: str, code: str) -> None:
    assert command_code(command, VALUES) == code


TEXTS = [
    "",
    "plain",
    "it's",
    'say "hi"',
    "both ' and \"",
    "ends with '",
    'ends with "',
    "three ''' of them",
    'three """ of them',
    "all ' \" ''' \"\"\"",
    "lines\nwith \"\"\"\nand '''\n",
    'lines\nthat end with "',
    "back\\slash",
    "ends with \\",
    "\\n is no line break",
    "tab\tand\rreturn",
    "{braces} {{twice}}",
    "nul \x00 escape \x1b",
    "ünïcode 🦥 \u2028",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_literal_is_its_text(text: str) -> None:
    assert ast.literal_eval(literal([text])) == text


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("expression", ["x", "options['a']", 'options["a"]', "'\"'.join(packages)"])
def test_expressions_stand_between_texts(text: str, expression: str) -> None:
    code = literal([text, text, text], [expression, expression])
    value = eval(expression, dict(VALUES))
    assert eval(code, dict(VALUES)) == f"{text}{value}{text}{value}{text}"


@pytest.mark.parametrize(
    ("source", "kind", "name", "text", "installs"),
    [
        ("!pip install a", "system", "", "pip install a", True),
        ("!!ls", "output", "", "ls", False),
        ("x = !pip install a", "output", "", "pip install a", True),
        ("%pip install a", "line", "pip", "install a", True),
        ("%pip list", "line", "pip", "list", False),
        ("%env A=1", "line", "env", "A=1", False),
        ("%%bash\npip install a\n", "cell", "bash", "", True),
        ("%%bash -x\nls\n", "cell", "bash", "-x", False),
        ("%%writefile a.py\npip install\n", "cell", "writefile", "a.py", False),
        ("import os\nos.system('pip install a')", "system", "", "pip install a", True),
        ("get_ipython().system('pip install a')", "system", "", "pip install a", True),
        ("get_ipython().magic('env A=1')", "line", "env", "A=1", False),
        ("get_ipython().kernel.do_shutdown(True)", "bare", "", "", False),
        ("get_ipython().ask_exit()", "other", "ask_exit", "", False),
    ],
)
def test_what_a_call_is(source: str, kind: str, name: str, text: str, installs: bool) -> None:
    (call,) = shell_calls(facts_of(source))
    assert (call.kind, call.name, call.text, call.is_install) == (kind, name, text, installs)


@pytest.mark.parametrize("source", ["import os\nos.system('ls')", "system('pip install a')", "x = '!ls'"])
def test_what_is_no_shell_call(source: str) -> None:
    assert not list(shell_calls(facts_of(source)))


def test_variables_in_a_bash_cell_are_the_shells() -> None:
    (call,) = shell_calls(facts_of("%%bash\necho {x} $x\n"))
    assert ast.literal_eval(call.code({"x"})) == "echo {x} $x\n"
