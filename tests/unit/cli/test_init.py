"""``nb2ddp init``: a file that changes nothing until a line of it is taken out of its comment."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from nb2ddp.options import Options, file_defaults, settings
from tests.unit.cli.conftest import Invoke


def test_it_names_each_option_with_its_help_and_changes_nothing(invoke: Invoke, tmp_path: Path) -> None:
    assert invoke("init").exit_code == 0
    written = (tmp_path / "nb2ddp.toml").read_text()
    assert tomllib.loads(written) == {}
    assert file_defaults(tmp_path) == Options()
    prose = " ".join(written.replace("#", "").split())
    for setting in settings():
        assert setting.help in prose
    assert max(map(len, written.splitlines())) <= 100


def test_each_line_may_be_taken_out_of_its_comment(invoke: Invoke, tmp_path: Path) -> None:
    assert invoke("init").exit_code == 0
    path = tmp_path / "nb2ddp.toml"
    lines = path.read_text().splitlines()
    keys = [line for line in lines if re.match(r"# [\w-]+ = ", line)]
    assert len(keys) == len(settings())
    path.write_text("\n".join(line[2:] for line in keys))
    assert file_defaults(tmp_path) == Options(owner="...", title="...")


@pytest.mark.parametrize("options", [[], ["--force"]])
def test_a_file_that_is_there_stays(invoke: Invoke, tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "nb2ddp.toml").write_text("nproc = 4\n")
    done = invoke("init", *options)
    assert done.exit_code == (0 if options else 1)
    assert (file_defaults(tmp_path).nproc == 4) == (not options)
    assert ("--force" in done.stderr) == (not options)


def test_a_folder_that_cannot_be_written_is_a_sentence(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "nb2ddp.toml").mkdir()
    done = invoke("init", "--force")
    assert (done.exit_code, done.stderr) == (
        1,
        "nb2ddp: nb2ddp.toml cannot be written here: Is a directory.\n",
    )
