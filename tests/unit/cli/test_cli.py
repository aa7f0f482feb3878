"""The command line: what is printed where, what is written, and the exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import nbformat
import pytest
from click.testing import CliRunner, Result

from nb2ddp.cli import main
from nb2ddp.cli.rules import page_of
from nb2ddp.rules import RULES
from tests.support import SAMPLES
from tests.support.helpers import notebook

TRAIN = """
from trl import SFTConfig, SFTTrainer
trainer = SFTTrainer(model=m, args=SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4))
trainer.train()
"""
KEYS = ["notebook", "status", "script", "changes", "declined", "notes", "source_map"]

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs a command in an empty folder; an exception that is no exit is a failure."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)

    return run


def save(path: Path, *cells: str, **metadata: Any) -> Path:
    node = notebook(*cells)
    node.metadata.update(metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(node, path)
    return path


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def entries(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [*document["changes"], *document["declined"]]


# ---- help ---------------------------------------------------------------------------------------


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


# ---- convert ------------------------------------------------------------------------------------


def test_one_notebook_makes_one_folder(invoke: Invoke, tmp_path: Path) -> None:
    path = save(tmp_path / "my run.ipynb", "!pip install a", TRAIN)
    result = invoke("convert", path)
    assert result.exit_code == 0
    assert everything(tmp_path / "my run_ddp") == {
        "train_ddp.py",
        "ddp_support.py",
        "setup_env.py",
        "report.json",
        "kaggle/kernel-metadata.json",
        "kaggle/my-run.py",
    }
    assert result.stdout == ""
    assert "nb2ddp run 'my run_ddp' --nproc 2 --setup" in result.stderr


def test_each_change_is_told_with_rule_cell_line_and_why(invoke: Invoke, tmp_path: Path) -> None:
    path = save(tmp_path / "a.ipynb", "x = 1", f"# above{TRAIN}")
    result = invoke("convert", path, "--json")
    told = invoke("convert", path, "--output-format", "concise").stdout
    for change in json.loads(result.stdout)["changes"]:
        where = f"cell {change['cell']}, line {change['line']}: " if change["cell"] else ""
        assert f"a.ipynb: {where}{change['why']} [{change['rule']}]" in told


def test_no_install_no_setup_file_and_no_setup_option(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("convert", save(tmp_path / "a.ipynb", TRAIN))
    assert not (tmp_path / "a_ddp" / "setup_env.py").exists()
    assert "--setup" not in result.stderr


def test_output_names_the_folder(invoke: Invoke, tmp_path: Path) -> None:
    assert invoke("convert", save(tmp_path / "a.ipynb", TRAIN), "-o", "out/deep").exit_code == 0
    assert (tmp_path / "out" / "deep" / "train_ddp.py").is_file()
    assert not (tmp_path / "a_ddp").exists()


def test_several_notebooks_make_a_folder_each(invoke: Invoke, tmp_path: Path) -> None:
    paths = [save(tmp_path / name, TRAIN) for name in ("a.ipynb", "b.ipynb")]
    assert invoke("convert", *paths, "-o", "out").exit_code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"a_ddp", "b_ddp"}


def test_the_json_report_is_alone_on_stdout(invoke: Invoke, tmp_path: Path) -> None:
    path = save(tmp_path / "a.ipynb", "import os\n!pip install a\nos.environ['A'] = '1'", TRAIN)
    result = invoke("convert", path, "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (0, "")
    assert list(document) == KEYS
    assert (document["notebook"], document["status"]) == (str(path), "converted")
    assert Path(document["script"]) == Path("a_ddp", "train_ddp.py")
    assert document["changes"]
    for change in document["changes"]:
        assert list(change) == ["rule", "cell", "line", "script_line", "why"]
        assert change["rule"] in {rule.name for rule in RULES}
    assert all(isinstance(note, str) for note in document["notes"])
    written = json.loads((tmp_path / "a_ddp" / "report.json").read_text(encoding="utf-8"))
    assert written["changes"] == document["changes"]


def test_the_json_of_several_is_a_list(invoke: Invoke, tmp_path: Path) -> None:
    good = save(tmp_path / "a.ipynb", TRAIN)
    bad = save(tmp_path / "b.ipynb", "x = 1\ny = (")
    result = invoke("convert", good, bad, tmp_path / "missing.ipynb", "--json")
    documents = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [d["status"] for d in documents] == ["converted", "declined", "failed"]
    assert all(list(d) == KEYS for d in documents)
    assert [d["script"] is None for d in documents] == [False, True, True]
    (declined,) = documents[1]["declined"]
    assert list(declined) == ["rule", "cell", "line", "why"]
    assert declined["cell"] == 1
    assert documents[2]["notes"] == [f"{tmp_path}/missing.ipynb does not exist."]
    assert (tmp_path / "a_ddp" / "train_ddp.py").exists()
    assert not (tmp_path / "b_ddp").exists()


def test_check_writes_nothing(invoke: Invoke, tmp_path: Path) -> None:
    path = save(tmp_path / "a.ipynb", TRAIN)
    result = invoke("convert", path, "--check")
    assert result.exit_code == 0
    assert everything(tmp_path) == {"a.ipynb"}
    assert "nothing written" in result.stderr
    assert invoke("convert", save(tmp_path / "b.ipynb", "x = ("), "--check").exit_code == 1


def test_diff_shows_what_is_taken_and_what_is_given(invoke: Invoke, tmp_path: Path) -> None:
    path = save(tmp_path / "a.ipynb", "!pip install a\nx = 1", TRAIN)
    shown = invoke("convert", path, "--check", "--diff").stdout.splitlines()
    assert "-!pip install a" in shown
    assert " x = 1" in shown
    assert any(line.startswith("+rank, local_rank, world_size = ") for line in shown)


def test_the_diff_is_coloured_on_a_terminal(tmp_path: Path) -> None:
    path = save(tmp_path / "a.ipynb", "!pip install a", TRAIN)
    result = CliRunner().invoke(main, ["convert", str(path), "--check", "--diff"], color=True)
    assert "\x1b[31m-!pip install a\x1b[0m" in result.stdout


def test_edited_output_is_kept_without_force(invoke: Invoke, tmp_path: Path) -> None:
    path = save(tmp_path / "a.ipynb", TRAIN)
    invoke("convert", path)
    script = tmp_path / "a_ddp" / "train_ddp.py"
    written = script.read_text()
    script.write_text(f"{written}# mine\n")
    result = invoke("convert", path)
    assert result.exit_code == 1
    assert "train_ddp.py changed since nb2ddp wrote" in result.stderr
    assert script.read_text().endswith("# mine\n")
    as_json = json.loads(invoke("convert", path, "--json").stdout)
    assert (as_json["status"], as_json["script"]) == ("failed", None)
    assert invoke("convert", path, "--force").exit_code == 0
    assert script.read_text() == written


@pytest.mark.parametrize("batch", ["preserve", "scale"])
@pytest.mark.parametrize("wrap", ["explicit", "trainer"])
def test_options_reach_the_script(invoke: Invoke, tmp_path: Path, batch: str, wrap: str) -> None:
    path = save(tmp_path / "a.ipynb", TRAIN)
    assert invoke("convert", path, "--batch", batch, "--wrap", wrap, "--nproc", "4").exit_code == 0
    script = (tmp_path / "a_ddp" / "train_ddp.py").read_text()
    assert ("share_batch(2, 4)" in script) == (batch == "preserve")
    assert ("wrap_trainer(trainer)" in script) == (wrap == "explicit")
    assert "--nproc_per_node=4" in script


def test_owner_and_title_reach_kaggle(invoke: Invoke, tmp_path: Path) -> None:
    path = save(tmp_path / "a.ipynb", TRAIN)
    assert invoke("convert", path, "--owner", "somebody", "--title", "My long title").exit_code == 0
    metadata = json.loads((tmp_path / "a_ddp" / "kaggle" / "kernel-metadata.json").read_text())
    assert metadata["id"] == "somebody/my-long-title"


@pytest.mark.parametrize(
    "arguments",
    [
        ["convert"],
        ["convert", "a.ipynb", "--nproc", "0"],
        ["convert", "a.ipynb", "--batch", "other"],
        ["convert", "a.ipynb", "--no-such-option"],
        ["convert", "one/a.ipynb", "two/a.ipynb"],
        ["convert", "a.ipynb", "-o", "file"],
        ["rules", "no-such-rule"],
        ["no-such-command"],
        ["run"],
        ["run", "a.py", "--nproc", "0"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_ends_with_2(invoke: Invoke, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "file").touch()
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "Usage:" in result.stderr
    assert everything(tmp_path) == {"file"}


def r_notebook(path: Path) -> None:
    save(path, "x <- 1", kernelspec={"name": "ir", "language": "R", "display_name": "R"})


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content, encoding="utf-8")


def data(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


CODE = '{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": null'
UNUSABLE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "missing": (lambda path: None, "failed", "does not exist"),
    "empty file": (text(""), "failed", "is not a Jupyter notebook: it is empty"),
    "no JSON": (text("print(1)\n"), "failed", "is not a Jupyter notebook: it is not JSON from line 1 on"),
    "half of a notebook": (text('{"cells": [{"cell_type"'), "failed", "it is not JSON from line 1 on"),
    "JSON, but a list": (text("[]"), "failed", "it is JSON, but has no list of cells"),
    "JSON, but something else": (text('{"a": 1}'), "failed", "it is JSON, but has no list of cells"),
    "no text": (data(b"\x80\x81\xff"), "failed", "cannot be read"),
    "cells without source": (
        text(f'{{"nbformat": 4, "nbformat_minor": 5, "metadata": {{}}, "cells": [{CODE}}}]}}'),
        "failed",
        "Jupyter",
    ),
    "a number for source": (
        text(f'{{"nbformat": 4, "nbformat_minor": 5, "metadata": {{}}, "cells": [{CODE}, "source": 1}}]}}'),
        "failed",
        "Jupyter",
    ),
    "no cells": (lambda path: save(path), "declined", ""),
    "only text": (lambda path: save(path, "md:# Hello"), "declined", ""),
    "another language": (r_notebook, "declined", "its kernel speaks r"),
    "a syntax error": (lambda path: save(path, "x = 1\ny = = 2\n"), "declined", "cell 1 line 2"),
    "half of an indent": (lambda path: save(path, "if x:\n    a\n  b\n"), "declined", "cell 1 line"),
    "a return outside": (lambda path: save(path, "return 1\n", TRAIN), "declined", "return"),
}


@pytest.mark.parametrize(("make", "status", "sentence"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_what_cannot_be_converted_is_told_in_a_sentence(
    invoke: Invoke, tmp_path: Path, make: Callable[[Path], object], status: str, sentence: str
) -> None:
    path = tmp_path / "a.ipynb"
    make(path)
    result = invoke("convert", path)
    assert result.exit_code == 1
    assert sentence in " ".join(result.stderr.split())
    assert "a.ipynb" in result.stderr
    assert "Traceback" not in result.output
    assert "INTERNAL ERROR" not in result.output
    assert not (tmp_path / "a_ddp").exists()
    assert json.loads(invoke("convert", path, "--json").stdout)["status"] == status


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"language_info": None, "kernelspec": None},
        {"language_info": {}, "kernelspec": {}},
        {"language_info": "python"},
        {"kernelspec": {"name": "python3"}},
        {"language_info": {"name": "Python"}},
        {"language_info": {"name": "ipython", "version": 3}},
        {"kernelspec": {"language": "python", "name": "x", "display_name": "x"}},
        {"colab": {"provenance": []}, "stray": [1]},
    ],
    ids=str,
)
def test_a_kernel_that_may_speak_python(invoke: Invoke, tmp_path: Path, metadata: dict[str, Any]) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({**notebook(TRAIN), "metadata": metadata}))
    assert invoke("convert", path, "--check").exit_code == 0


def test_a_byte_order_mark_and_halves_of_characters(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    node = json.dumps(notebook("sloth = 'PAIR'  # HALF", TRAIN))
    node = node.replace("PAIR", "\\ud83e\\udda5").replace("HALF", "\\ud83e")
    path.write_text(f"\ufeff{node}", encoding="utf-8")
    assert invoke("convert", path).exit_code == 0
    assert "sloth = '🦥'  # \ufffd\n" in (tmp_path / "a_ddp" / "train_ddp.py").read_text(encoding="utf-8")


def test_an_owner_that_kaggle_would_refuse(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("convert", save(tmp_path / "a.ipynb", TRAIN), "--owner", "not a name!")
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert not (tmp_path / "a_ddp").exists()


# ---- run, rules ---------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["missing.ipynb", "missing", "missing.py", "empty", "broken.ipynb"])
def test_run_of_what_cannot_be_run(invoke: Invoke, tmp_path: Path, target: str) -> None:
    (tmp_path / "empty").mkdir()
    save(tmp_path / "broken.ipynb", "x = (")
    result = invoke("run", target)
    assert result.exit_code == 1
    assert target in result.stderr
    assert "Traceback" not in result.output


def test_run_starts_the_script_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a_ddp").mkdir()
    script = tmp_path / "a_ddp" / "train_ddp.py"
    script.write_text(
        "import os, sys\nprint('rank', os.environ['RANK'])\nsys.exit(3 * (os.environ['RANK'] == '0'))"
    )
    command = [sys.executable, "-m", "nb2ddp", "run", "a_ddp", "--cpu", "--nproc", "1"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 3, result.stderr
    assert "rank 0" in result.stdout


def test_the_rules_are_listed_in_their_order(invoke: Invoke) -> None:
    listed = [line.split()[0] for line in invoke("rules").stdout.splitlines()]
    assert listed == [rule.name for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_shows_its_diff(invoke: Invoke, rule: Any) -> None:
    result = invoke("rules", rule.name)
    assert result.exit_code == 0
    assert "``" not in result.stdout
    assert "code-block" not in result.stdout
    shown = [line.removeprefix("  ") for line in result.stdout.splitlines()]
    assert [line for line in page_of(rule.doc).diff if line.rstrip() not in shown] == []
    assert page_of(rule.doc).diff


def test_the_diff_of_a_rule_is_coloured_on_a_terminal() -> None:
    shown = CliRunner().invoke(main, ["rules", "device-map"], color=True).stdout
    assert "\x1b[32m  +" in shown
    assert "\x1b" not in CliRunner().invoke(main, ["rules", "device-map"]).stdout


def test_near_names_are_suggested(invoke: Invoke) -> None:
    assert "Did you mean 'batch'?" in invoke("rules", "batsh").stderr


# ---- as people start it -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start", [[sys.executable, "-m", "nb2ddp"], [str(Path(sys.executable).with_name("nb2ddp"))]]
)
def test_as_a_module_and_as_a_command(tmp_path: Path, start: list[str]) -> None:
    path = SAMPLES / "alpaca_sft.ipynb"
    environment = {**os.environ, "PYTHONWARNINGS": "error::SyntaxWarning"}
    result = subprocess.run(
        [*start, "convert", str(path), "--json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout)["status"] == "converted"
    assert (tmp_path / "alpaca_sft_ddp" / "train_ddp.py").is_file()


def test_the_version(invoke: Invoke) -> None:
    from nb2ddp import __version__

    assert invoke("--version").stdout == f"nb2ddp, version {__version__}\n"


def test_a_rehearsal_of_what_is_not_there_says_only_that() -> None:
    done = CliRunner().invoke(main, ["rehearse", "missing.ipynb"])
    assert (done.exit_code, done.stderr) == (3, "nb2ddp: missing.ipynb does not exist.\n")
