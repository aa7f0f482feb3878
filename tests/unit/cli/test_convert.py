"""`convert`: what it writes and prints, and what it cannot convert."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nb2ddp.cli import main
from nb2ddp.rules import RULES
from tests.support.helpers import notebook
from tests.unit.cli.conftest import TRAIN, Invoke, everything, save

KEYS = ["notebook", "status", "script", "changes", "declined", "notes", "source_map"]


def entries(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [*document["changes"], *document["declined"]]


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


@pytest.mark.parametrize("missing", ["ddp_support", "torch"])
def test_a_script_says_which_module_it_misses(invoke: Invoke, tmp_path: Path, missing: str) -> None:
    invoke("convert", save(tmp_path / "a.ipynb", TRAIN), "-o", "out")
    (tmp_path / "out" / "ddp_support.py").unlink()
    if missing == "torch":
        (tmp_path / "out" / "ddp_support.py").write_text("raise ModuleNotFoundError('No module named torch')")
    ended = subprocess.run([sys.executable, "out/train_ddp.py"], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert f"No module named {missing}" in ended.stderr.replace("'", "")
    assert "needs PyTorch, and ddp_support.py beside it" in ended.stderr


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
    assert "train_ddp.py was changed since nb2ddp wrote it" in result.stderr
    assert script.read_text().endswith("# mine\n")
    as_json = json.loads(invoke("convert", path, "--json").stdout)
    assert (as_json["status"], as_json["script"]) == ("failed", None)
    assert invoke("convert", path, "--force").exit_code == 0
    assert script.read_text() == written


@pytest.mark.parametrize("batch", ["preserve", "scale"])
def test_options_reach_the_script(invoke: Invoke, tmp_path: Path, batch: str) -> None:
    path = save(tmp_path / "a.ipynb", TRAIN)
    assert invoke("convert", path, "--batch", batch, "--nproc", "4").exit_code == 0
    script = (tmp_path / "a_ddp" / "train_ddp.py").read_text()
    assert ('wrap_trainer(trainer, batch="scale")' in script) == (batch == "scale")
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
    "a format of its own": (
        text(f'{{"nbformat": 5, "nbformat_minor": 5, "metadata": {{}}, "cells": [{CODE}, "source": ""}}]}}'),
        "failed",
        'its format is version 5, which Jupyter does not know; write "nbformat": 4',
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


def test_a_file_of_another_kind_names_the_kinds(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# notes\n")
    assert "Notebooks end with .ipynb, or with .py" in invoke("convert", tmp_path / "notes.md").stderr
    (tmp_path / "a.ipynb").write_text("# notes\n")
    assert "Notebooks end" not in invoke("convert", tmp_path / "a.ipynb").stderr


def test_the_table_of_a_folder_says_what_trains_nothing(invoke: Invoke, tmp_path: Path) -> None:
    save(tmp_path / "a.ipynb", "x = 1")
    (tmp_path / "b.ipynb").write_text("{")
    told = invoke("convert", tmp_path, "--check").stderr
    assert re.search(r"^\(cannot be read\) +0 +0 +1$", told, re.MULTILINE), told
    assert re.search(r"^\(no training\) +0 +1 +0$", told, re.MULTILINE), told


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"language_info": None, "kernelspec": None},
        {"language_info": {}, "kernelspec": {}},
        {"language_info": "python"},
        {"kernelspec": {"name": "python3"}},
        {"language_info": {"name": "Python"}},
        {"language_info": {"name": "julia", "file_extension": ".py"}},
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
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert not (tmp_path / "a_ddp").exists()
