"""Commands that copy a notebook warn of the secrets in it, and show none."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner

from nb2ddp.cli import main
from nb2ddp.conversion.secret_notes import RULE
from nb2ddp.secrets import secrets_in_text
from tests.support.helpers import converted, notebook
from tests.support.tokens import TOKENS

TRAIN = (
    "from trl import SFTConfig, SFTTrainer\n"
    "trainer = SFTTrainer('m', args=SFTConfig('o'), train_dataset=[])\ntrainer.train()"
)
TOKEN = TOKENS["huggingface-token"][0]
LOGIN = f"import torch\nfrom huggingface_hub import login\nlogin('{TOKEN}')\n!pip install x"


@pytest.mark.parametrize("rule", TOKENS)
def test_a_conversion_notes_each_kind(rule: str) -> None:
    token, around = TOKENS[rule]
    text = around.format(token)
    result = converted(f"%%writefile .env\n{text}\n", f"md:Use\n\n{text}", TRAIN)
    assert result.status == "converted"
    notes = [note for note in result.notes if note.rule == RULE]
    in_code = [note.place.cell for note in notes if note.place]
    in_text = [note for note in notes if not note.place and "in the text after cell 1, line 3" in note.why]
    assert in_code == [1] * len(in_code), "the cell is named"
    assert in_code
    assert in_text or "\n" in text, "and the text"
    fingerprints = {secret.fingerprint for secret in secrets_in_text(text, "x")}
    assert any(mark in note.why for note in notes for mark in fingerprints), "as push gives it"
    assert rule == "private-key" or not any(token[8:] in str(note) for note in result.notes)


def test_a_conversion_without_secrets_is_silent() -> None:
    result = converted("import os\ntoken = os.environ['HF_TOKEN']\nlogin(token)", TRAIN, "md:hf_...")
    assert not [note for note in result.notes if note.rule == RULE]


FORMATS = [[], ["-q"], ["-v"], ["--json"], ["--output-format", "github"], ["--output-format", "concise"]]


@pytest.mark.parametrize("options", FORMATS, ids=lambda options: " ".join(options) or "full")
def test_each_format_warns(options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (fingerprint,) = {secret.fingerprint for secret in secrets_in_text(LOGIN, "x")}
    nbformat.write(notebook(LOGIN, TRAIN), "nb.ipynb")
    result = CliRunner().invoke(main, ["convert", "nb.ipynb", *options])
    assert result.exit_code == 0
    said = " ".join(result.output.split())
    assert "a secret, Hugging Face token (hf_…), is written here" in said
    assert f"--allow-secret {fingerprint}" in said
    assert TOKEN[4:] not in result.output
    assert TOKEN not in (tmp_path / "nb_ddp" / "report.json").read_text(encoding="utf-8")
    assert "nb2ddp push" not in result.output, "it would refuse"


def test_a_folder_of_notebooks_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("all").mkdir()
    nbformat.write(notebook(LOGIN, TRAIN), "all/a.ipynb")
    nbformat.write(notebook(TRAIN), "all/b.ipynb")
    result = CliRunner().invoke(main, ["convert", "all", "--check"])
    assert result.output.count("Hugging Face token") == 1
    assert TOKEN not in result.output


def test_emit_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nbformat.write(notebook(LOGIN, TRAIN), "nb.ipynb")
    assert CliRunner().invoke(main, ["convert", "nb.ipynb"]).exit_code == 0
    for source in ("nb_ddp", "nb.ipynb"):
        result = CliRunner().invoke(main, ["emit", "--target", "slurm", source])
        assert result.exit_code == 0
        said = " ".join(result.output.split())
        assert said.count("a secret, Hugging Face token (hf_…), is written here") == 1, source
        assert ("(cell 1, line 3)" in said) == (source == "nb_ddp")
        assert TOKEN not in result.output
    other = tmp_path / "nb_ddp" / "train_ddp.py"
    other.write_text(other.read_text(encoding="utf-8").replace(TOKEN, "x"), encoding="utf-8")
    assert "token" not in CliRunner().invoke(main, ["emit", "--target", "torchrun", "nb_ddp"]).output
