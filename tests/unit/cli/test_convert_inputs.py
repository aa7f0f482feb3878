"""`nb2ddp convert` of what lies in no file: the folder keeps a copy, so that it can be rehearsed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner

from nb2ddp.cli import main
from nb2ddp.rehearse.subject import subject_of
from tests.support.helpers import notebook
from tests.unit.source.test_inputs import Server, body

TRAIN = """
from trl import SFTConfig, SFTTrainer
trainer = SFTTrainer(model=m, args=SFTConfig(per_device_train_batch_size=2))
trainer.train()
"""
TEXT = nbformat.writes(notebook(TRAIN))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Server()
    yield made
    made.close()


def test_a_link_makes_a_folder_that_can_be_rehearsed(server: Server) -> None:
    server.answers["/my%20run.ipynb"] = body(TEXT)
    link = f"{server.address}/my%20run.ipynb"
    result = CliRunner().invoke(main, ["convert", link, "--json"], catch_exceptions=False)
    document = json.loads(result.stdout)
    assert (result.exit_code, document["status"], document["notebook"]) == (0, "converted", link)
    folder = Path("my run_ddp")
    assert Path(document["script"]) == folder / "train_ddp.py"
    assert (folder / "my run.ipynb").read_text() == TEXT
    assert subject_of(folder).script == (folder / "train_ddp.py").read_text()


def test_a_link_that_fails_does_not_stop_the_others(server: Server) -> None:
    server.answers["/b.ipynb"] = body(TEXT)
    links = [f"{server.address}/{name}.ipynb" for name in "ab"]
    result = CliRunner().invoke(main, ["convert", *links], catch_exceptions=False)
    assert result.exit_code == 1
    assert "(HTTP 404)" in result.stderr
    assert "1 converted, 1 failed." in result.stderr
    assert Path("b_ddp", "train_ddp.py").is_file()


def test_standard_input_and_a_percent_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, ["convert", "-"], input=TEXT, catch_exceptions=False).exit_code == 0
    assert Path("notebook_ddp", "notebook.ipynb").read_text() == TEXT
    Path("train.py").write_text(f"# %%{TRAIN}")
    assert CliRunner().invoke(main, ["convert", "train.py"], catch_exceptions=False).exit_code == 0
    scripts = [Path(f"{stem}_ddp", "train_ddp.py").read_text() for stem in ("notebook", "train")]
    bodies = [script[script.index("# ---- cell 1") :] for script in scripts]
    assert bodies[0] == bodies[1]
    assert subject_of(Path("train_ddp")).name == "train.py"


@pytest.mark.parametrize("command", ["run", "emit"])
def test_other_commands_name_the_way(command: str) -> None:
    words = [command, "https://x.org/a.ipynb", *(["--target", "slurm"] if command == "emit" else [])]
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 1
    assert "`nb2ddp convert LINK`" in result.stderr


@pytest.mark.parametrize("link", ["ftp://x.org/a.ipynb", "kaggle:me"])
def test_what_cannot_be_read_ends_with_a_sentence(link: str) -> None:
    result = CliRunner().invoke(main, ["convert", link], catch_exceptions=False)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"nb2ddp: {link}")
