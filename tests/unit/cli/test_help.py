"""The help of each command, and what it takes to show it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from nb2ddp import __version__
from nb2ddp.cli import main
from tests.support import SAMPLES
from tests.unit.cli.conftest import Invoke


@pytest.mark.parametrize("name", [None, *main.commands])
def test_help_shows_an_example(invoke: Invoke, name: str | None) -> None:
    result = invoke(*([name] if name else []), "--help")
    assert result.exit_code == 0
    assert "Example" in result.stdout
    examples = result.stdout.partition("Example")[2]
    assert f"nb2ddp {name or 'convert'}" in examples


@pytest.mark.parametrize("command", main.commands.values(), ids=list(main.commands))
def test_every_option_is_explained(command: click.Command) -> None:
    assert all(option.help for option in command.params if isinstance(option, click.Option))


@pytest.mark.parametrize("name", [None, *main.commands])
def test_help_is_sentences_in_sections(invoke: Invoke, name: str | None) -> None:
    text = invoke(*([name] if name else []), "--help").stdout
    assert "Exit codes:" not in text
    assert not re.search(r"\w\.\.\.$", text.partition("\n")[2], re.MULTILINE)  # as click cuts a sentence off
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("name", ["convert", "emit"])
def test_every_option_is_in_a_section(invoke: Invoke, name: str) -> None:
    command: Any = main.commands[name]
    named = [parameter for names in command.sections.values() for parameter in names]
    own = [parameter.name for parameter in command.params if isinstance(parameter, click.Option)]
    assert sorted(named) == sorted(own)
    assert invoke(name, "--help").stdout.partition("Other options:")[2].split()[:2] == ["-h,", "--help"]


def test_every_command_is_in_a_section(invoke: Invoke) -> None:
    assert "Other commands:" not in invoke("--help").stdout


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_the_version_is_printed(invoke: Invoke, flag: str) -> None:
    assert invoke(flag).stdout == f"nb2ddp, version {__version__}\n"


def test_the_help_names_the_completion(invoke: Invoke) -> None:
    line = "_NB2DDP_COMPLETE=bash_source nb2ddp"
    assert line in " ".join(invoke("--help").stdout.split())
    environment = {**os.environ, "_NB2DDP_COMPLETE": "bash_source"}
    code = "import sys; sys.argv[0] = 'nb2ddp'; from nb2ddp.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "complete -o nosort -F" in done.stdout, done.stderr


def test_help_loads_no_converter() -> None:
    code = (
        "import sys, nb2ddp.cli\n"
        "try: nb2ddp.cli.main(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'libcst', 'torch', 'IPython', 'nbformat', 'nbconvert', 'jinja2', 'kaggle', 'rich'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or None)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_conversion_compiles_no_grammars(tmp_path: Path) -> None:
    pytest.importorskip("rfc3987_syntax")
    code = (
        "import sys, nb2ddp.cli\n"
        f"try: nb2ddp.cli.main(['convert', {str(SAMPLES / 'alpaca_sft.ipynb')!r}, '-o', {str(tmp_path / 'out')!r}])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert 'jsonschema' in sys.modules\n"
        "assert 'lark' not in sys.modules\n"
        "import rfc3987_syntax"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
