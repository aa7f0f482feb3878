"""Syntax that is newer than the running Python is read wherever a script is."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from nb2ddp.doctor.script import imports_of
from nb2ddp.rehearse.subject import subject_of
from nb2ddp.source.syntax_check import parse
from nb2ddp.targets.kaggle import tokens_read
from tests.support.helpers import notebook

NEWER = {
    "an f-string": "d = {'a': 1}\nx = f'{d['a']}'\n",
    "a type": "type X = int\n",
    "a generic function": "def f[T](x: T) -> T:\n    return x\n",
    "a generic class": "class C[T]:\n    pass\n",
}


@pytest.mark.parametrize("form", NEWER)
def test_newer_syntax_is_parsed(form: str) -> None:
    tree = parse(f"import a\n{NEWER[form]}import b\n")
    assert [node.names[0].name for node in tree.body if isinstance(node, ast.Import)] == ["a", "b"]


@pytest.mark.parametrize("text", ["x = (", "f'{", "type X =", "\0", "x = " + "(" * 5000])
def test_what_no_python_takes(text: str) -> None:
    with pytest.raises((SyntaxError, ValueError, MemoryError, RecursionError)):
        parse(text)


@pytest.mark.parametrize("form", NEWER)
def test_everybody_who_reads_a_script_reads_newer_syntax(form: str, tmp_path: Path) -> None:
    code = NEWER[form] + "import os, helper\ntoken = os.environ['HF_TOKEN']\n"
    assert tokens_read(code) == {"HF_TOKEN": "required"}
    (tmp_path / "train_ddp.py").write_text(code, encoding="utf-8")
    assert imports_of(tmp_path) == ("os", "helper")
    train = (
        "from trl import SFTConfig, SFTTrainer\nt = SFTTrainer('m', args=SFTConfig('o'), train_dataset=[])\n"
    )
    (tmp_path / "nb.ipynb").write_text(json.dumps(notebook(NEWER[form], train + "t.train()")))
    assert "helper" not in subject_of(tmp_path / "nb.ipynb").modules
