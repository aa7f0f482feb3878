"""``nb2ddp run``: what it asks of the launcher."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import nb2ddp.launch.run
from nb2ddp.cli import main
from nb2ddp.ddp_folder import SCRIPT
from nb2ddp.launch.run import Launch, Observer
from tests.support.helpers import converted
from tests.unit.cli.conftest import TRAIN


@pytest.mark.parametrize(
    "options", [["--cpu", "--nproc", "3"], ["--log-dir", "a b", "--", "--max-restarts=1"], []]
)
def test_the_command_that_goes_on_has_the_options_of_the_run_that_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    asked: list[dict[str, Any]] = []

    def launch(plan: Launch, observer: Observer) -> int:
        asked.append(vars(plan))
        return 130

    monkeypatch.setattr(nb2ddp.launch.run, "launch", launch)
    monkeypatch.chdir(tmp_path)
    for name, text in converted(TRAIN).files.items():
        (tmp_path / "a_ddp" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "a_ddp" / name).write_text(text)
    assert CliRunner().invoke(main, ["run", "a_ddp", *options]).exit_code == 130
    again = shlex.split(asked[0]["resume"])
    assert again[:3] == ["nb2ddp", "run", f"a_ddp/{SCRIPT}"]
    assert CliRunner().invoke(main, again[1:]).exit_code == 130
    same = ("script", "nproc", "cpu", "log_dir", "torchrun_options", "resume")
    assert [asked[1][name] for name in same] == [asked[0][name] for name in same]
    assert asked[0]["runner"] is None
    assert asked[1]["runner"] is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [("# %%\nprint(1)\n", True), ("# %%\nimport torch.distributed\n", False), ("print(1)\n", False)],
)
def test_cells_that_nothing_divides_are_said(tmp_path: Path, text: str, said: bool) -> None:
    (tmp_path / "a.py").write_text(text)
    result = CliRunner().invoke(main, ["run", str(tmp_path / "a.py"), "--cpu", "--log-dir", "/dev/null/no"])
    assert ("every process does all of it" in result.output) is said
