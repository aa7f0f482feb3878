"""The code file of a Kaggle bundle: what it embeds comes back exactly, in what Kaggle takes."""

from __future__ import annotations

import runpy
from pathlib import Path

import jinja2
import pytest

from nb2ddp import rendering
from nb2ddp.errors import BundleError
from nb2ddp.targets.kaggle import CODE_FILE_LIMIT, literal, oversize
from tests.support.kaggle_kernel import SCRIPT, bundle, code

NASTY = {
    "empty": "",
    "no newline at the end": "x = 1",
    "newlines at both ends": "\n\nx = 1\n\n",
    "docstring": '"""A script."""\nx = 1\n',
    "single triple quotes": "x = '''a\nb'''\n",
    "both triple quotes": "x = \"\"\"a\"\"\"\ny = '''b'''\n",
    "single triple quotes and a double quote at the end": "x = '''a'''\ny = \"",
    "backslashes": 'x = "\\n\\\\ \\x \\N{BULLET} \\u1234"\ny = 1 + \\\n    2\n',
    "a backslash at the end": "x = 1 + \\",
    "two backslashes at the end": "# \\\\",
    "quote at the end": "x = 'a'",
    "non-ASCII": "größe = 'ﬁne 日本 🦥 \u2028 \u00a0 \ufeff'\n",
    "CRLF": "x = 1\r\ny = 2\r\n",
    "carriage return": "x = '\r'\n",
    "tabs, form feed and escape": "if x:\n\ty = 1\n\x0c\n# \x1b[0m\x1a\n",
    "null": "x = '\0'\n",
    "template marks": "x = '{{ a }} {% if b %} {# c #}'\n",
    "many lines": "print('''x''', \"\"\"y\"\"\")\n" * 5000,
}


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY.keys())
def test_embedded_scripts_come_back_exactly(text: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_bytes(code(text, setup=text).encode())
    assert b"\r" not in path.read_bytes()  # the kaggle client reads it with universal newlines
    kernel = runpy.run_path(str(path))
    assert kernel["TRAIN_DDP"] == text
    assert kernel["SETUP_ENV"] == text


def test_ordinary_scripts_stand_there_as_they_are() -> None:
    script = '"""Trains."""\nimport os\n\nx = "a\\n"\n'
    assert f"TRAIN_DDP = r'''\n{script}'''[1:]\n" in code(script)
    quoted = "x = '''a\nb'''\n"
    assert f'TRAIN_DDP = r"""\n{quoted}"""[1:]\n' in code(quoted)


def test_other_scripts_stand_there_line_by_line() -> None:
    assert literal("a = 'é'\r\nb\n") == "(\n    \"a = 'é'\\r\\n\"\n    'b\\n'\n)"


def test_text_that_no_file_can_hold_is_refused() -> None:
    with pytest.raises(BundleError, match="Line 3 of a script holds half a character"):
        code("a\nb\nx = '\ud800'\n")


@pytest.mark.parametrize("name", ['a"""b.ipynb', "a\\N.ipynb", "a\nimport this.ipynb", "größe {{ x }}.ipynb"])
def test_the_notebooks_name_is_only_a_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(code(notebook_name=name), encoding="utf-8")
    assert runpy.run_path(str(path))["TRAIN_DDP"] == SCRIPT


def test_a_script_without_installs_has_no_trace_of_them() -> None:
    assert "setup" not in code(setup=None).lower()
    assert "pypi.org" not in code(setup=None)
    assert "pypi.org" not in code(setup="x = 1\n", enable_internet=False)


def test_the_code_file_is_tidy() -> None:
    for text in (
        code(),
        code(setup="x = 1\n"),
        code(setup="x = 1\n", enable_internet=False),
    ):
        assert "\n\n\n\n" not in text
        assert not [line for line in text.splitlines() if len(line) > 110 or line != line.rstrip()]


def test_a_code_file_that_is_too_large_is_told() -> None:
    assert oversize(bundle()) is None
    sentence = oversize(bundle("x = 1\n" * (CODE_FILE_LIMIT // 6)))
    assert sentence is not None
    assert sentence.startswith("tiny-run.py has 7")
    assert "Kaggle takes 700 KB" in sentence


def test_the_support_module_is_compressed_where_it_would_make_the_file_too_large(tmp_path: Path) -> None:
    support = "".join(f"print({number})  # größe\n" for number in range(15_000))
    made = {script: code(script, support=support) for script in ("x = 1\n", "x = 1\n" * 80_000)}
    for number, (script, text) in enumerate(made.items()):
        path = tmp_path / f"kernel_{number}.py"
        path.write_text(text, encoding="utf-8")
        assert oversize({"kernel.py": text}) is None
        kernel = runpy.run_path(str(path))
        assert (kernel["TRAIN_DDP"], kernel["DDP_SUPPORT"]) == (script, support)
        assert ("print(7)" in text, "zlib" in text) == ((True, False), (False, True))[number]
        assert not [line for line in text.splitlines() if len(line) > 110]


def test_templates_are_found_in_a_wheel_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "_PACKAGE", tmp_path)
    with pytest.raises(FileNotFoundError, match="installed without its templates"):
        rendering.templates_dir()
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "note.j2").write_text("{% if loud %}\n{{ word }}!\n{% endif %}\nend\n")
    assert rendering.render("note.j2", loud=True, word="é <b>") == "é <b>!\nend\n"
    with pytest.raises(jinja2.UndefinedError, match="'word' is undefined"):
        rendering.render("note.j2", loud=True)
