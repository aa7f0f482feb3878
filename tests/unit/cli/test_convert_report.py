"""What `convert` prints: for people at any width, for programs as whole lines, JSON and annotations."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner, Result

from nb2ddp.cli import main
from nb2ddp.conversion.report import batches, folded, split
from nb2ddp.rewriting.findings import Batch, Change
from nb2ddp.source.cells import Place
from tests.support.helpers import converted, notebook
from tests.unit.cli.conftest import line_of

TRAIN = """
from trl import SFTConfig, SFTTrainer
trainer = SFTTrainer(model=m, args=SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4))
trainer.train()
"""
LARGE = """
from unsloth import FastLanguageModel
m, tokenizer = FastLanguageModel.from_pretrained("org/Model-70B", load_in_4bit=True)
"""
IN_A_THREAD = """
import threading
from trl import SFTTrainer
def train():
    SFTTrainer(model=m).train()
threading.Thread(target=train).start()
"""
INSTALLS = "!pip install a\n!pip install b\nx = 1\n!pip install c"
# colours, and the line that says what is waited for
PIECES = re.compile(r"\x1b\[[0-9;]*m|\r[-\\|/] nb2ddp: \[[^\r]*|\r +\r")


def save(folder: Path, *cells: str, name: str = "a.ipynb") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook(*cells), path)
    return path


def convert(*arguments: str | Path, columns: int | None = None) -> Result:
    environment = {"COLUMNS": None if columns is None else str(columns)}
    words = ["convert", *map(str, arguments)]
    return CliRunner().invoke(main, words, env=environment, catch_exceptions=False)


# ---- the report for people ----------------------------------------------------------------------


def test_changes_are_grouped_by_cell_with_repeats_folded(tmp_path: Path) -> None:
    told = convert(save(tmp_path, INSTALLS, TRAIN), "--check").stderr
    assert told.splitlines()[0] == "a.ipynb: converted (sft)"
    (installs,) = [line for line in told.splitlines() if "[installs]" in line]
    assert installs.split("  ")[1] == "cell 1"
    assert "lines 1-2, 4" in installs
    assert told.count("a.ipynb") == 1
    assert told.count("cell 2") == 1


def test_of_what_is_declined_only_the_reasons_are_told(tmp_path: Path) -> None:
    path = save(tmp_path, INSTALLS, IN_A_THREAD)
    assert json.loads(convert(path, "--check", "--json").stdout)["changes"]
    told = convert(path, "--check").stderr
    assert ": declined" in told
    assert "[installs]" not in told
    assert "[installs]" in convert(path, "--check", "-v").stderr


def test_what_is_done_in_many_cells_is_told_at_the_first_with_their_number(tmp_path: Path) -> None:
    path = save(tmp_path, *(f"x = {number}\nx" for number in range(9)), TRAIN)
    (line,) = [line for line in convert(path, "--check").stderr.splitlines() if "[cell-output]" in line]
    assert "cell 1 " in line
    assert "here and in 8 other cells" in line
    assert convert(path, "--check", "-v").stderr.count("[cell-output]") == 9


@pytest.mark.parametrize("detail", [[], ["-v"]])
def test_what_is_a_change_and_a_note_is_told_once(tmp_path: Path, detail: list[str]) -> None:
    told = convert(save(tmp_path, "!huggingface-cli login", TRAIN), "--check", *detail).stderr
    assert told.count("asks for a token at the keyboard") == 1


def test_verbose_shows_each_change_with_the_notebooks_line(tmp_path: Path) -> None:
    told = convert(save(tmp_path, INSTALLS, TRAIN), "--check", "-v").stderr
    assert told.count("[installs]") == 3
    for line in ("!pip install a", "!pip install b", "!pip install c", "trainer.train()"):
        assert line in told


def test_quiet_prints_nothing_where_all_is_well(tmp_path: Path) -> None:
    assert convert(save(tmp_path, INSTALLS, TRAIN), "--check", "-q").output == ""


def test_quiet_prints_what_was_declined_and_what_does_not_fit(tmp_path: Path) -> None:
    told = convert(save(tmp_path, "x = ("), save(tmp_path, LARGE, TRAIN, name="b.ipynb"), "-q", "--check")
    assert told.exit_code == 1
    assert "a.ipynb: declined" in told.stderr
    assert "b.ipynb: converted" in told.stderr
    assert "70 billion parameters" in told.stderr
    assert "[batch]" not in told.stderr


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_report_keeps_to_the_width_and_breaks_between_words(tmp_path: Path, columns: int) -> None:
    path = save(tmp_path, INSTALLS, LARGE, TRAIN)
    told = convert(path, "--check", columns=columns).stderr.splitlines()
    told = [line for line in told if not line.startswith("nb2ddp: [")]  # what a busy machine waits for
    assert max(map(len, told)) <= columns
    assert all(line == line.rstrip() for line in told)
    words = set(" ".join(told).split())
    for change in json.loads(convert(path, "--check", "--json").stdout)["changes"]:
        assert set(change["why"].split()) <= words


def test_a_name_with_an_escape_sequence_does_not_reach_the_terminal(tmp_path: Path) -> None:
    path = save(tmp_path, "x = (", name="a\x1b[31m.ipynb")
    for form in ("full", "concise", "github"):
        result = convert(path, "--check", "--output-format", form)
        assert "\x1b" not in result.output
        assert r"a\x1b[31m.ipynb" in result.output


# ---- colour -------------------------------------------------------------------------------------


def on_a_terminal(path: Path, **environment: str) -> str:
    """What `convert --check` writes to a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "nb2ddp", "convert", str(path), "--check"]
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    env |= {"TERM": "xterm-256color", "COLUMNS": "80", **environment}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    pieces = []
    try:
        while piece := os.read(ours, 4096):
            pieces.append(piece)
    except OSError:
        pass  # how Linux says that the other side is gone
    os.close(ours)
    assert process.wait() == 0
    return b"".join(pieces).decode()


def test_colour_on_a_terminal_none_in_a_pipe_none_with_no_color(tmp_path: Path) -> None:
    path = save(tmp_path, TRAIN)
    shown = on_a_terminal(path)
    assert "\x1b[32mconverted\x1b[0m" in shown
    colors = re.compile(r"\x1b\[(?:\d+;)*3\d")
    assert not colors.search(on_a_terminal(path, NO_COLOR="1"))
    piped = convert(path, "--check", columns=80)
    assert "\x1b" not in piped.output
    plain = [line.rstrip() for line in PIECES.sub("", shown).splitlines()]
    assert plain == piped.output.splitlines()


# ---- the batch ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "world_size", "shares"),
    [
        (Batch(2, 4), 1, (2, 4)),
        (Batch(2, 4), 2, (2, 2)),
        (Batch(2, 4), 8, (1, 1)),
        (Batch(8, 1), 2, (4, 1)),
        (Batch(4, 3), 2, (2, 3)),
        (Batch(1, 1), 2, (1, 1)),
        (Batch(6, 2), 3, (2, 2)),
        (Batch(4, 1, 4), 2, (2, 1)),
        (Batch(1, 1, 4), 2, (2, 1)),
        (Batch(2, 2, 8), 3, (4, 2)),
    ],
)
def test_a_batch_is_split_as_the_script_does(batch: Batch, world_size: int, shares: tuple[int, int]) -> None:
    assert split(batch, world_size) == shares


def test_the_batch_arithmetic_is_one_line(tmp_path: Path) -> None:
    path = save(tmp_path, TRAIN)
    told = convert(path, "--check").stderr
    assert "  Batch: 2 x 4 on one GPU -> the same 8, divided over 2 GPUs\n" in told
    assert "divided over 4 GPUs\n" in convert(path, "--check", "--nproc", "4").stderr
    assert "the same 8, computed on 8 of 9 GPUs\n" in convert(path, "--check", "--nproc", "9").stderr
    assert "Batch:" not in convert(path, "--check", "--batch", "scale").stderr


def test_a_batch_that_cannot_be_split_says_so() -> None:
    change = Change("batch", Place(1, 1), "why", Batch(1, 1))
    (line,) = batches([change, change], 2)
    assert (
        line == "1 x 1 on one GPU -> 1 x 1 x 2 GPUs = 2, not 1: this batch cannot be split evenly over 2 GPUs"
    )


def test_groups_that_unsloth_makes_whole_are_the_notebooks_batch() -> None:
    change = Change("batch", Place(1, 1), "why", Batch(1, 1, 4))
    (line,) = batches([change], 2)
    assert line == "4 x 1 on one GPU (whole groups of 4) -> 2 x 1 x 2 GPUs = 4"
    assert batches([change], 2, uneven_alone=True) == []


@pytest.mark.parametrize("code", ["per_device_train_batch_size=size", "gradient_accumulation_steps=2 * 2"])
def test_a_batch_that_only_the_run_knows_has_no_arithmetic(code: str) -> None:
    conversion = converted(
        TRAIN.replace("per_device_train_batch_size=2, gradient_accumulation_steps=4", code)
    )
    assert conversion.status == "converted"
    assert batches(conversion.changes, 2) == []


def test_lines_of_one_reason_are_one_entry() -> None:
    changes = [Change("r", Place(2, line), "why") for line in (9, 1, 2, 3, 5, 2)]
    (entry,) = folded(changes)
    assert (entry.cell, entry.where) == (2, "lines 1-3, 5, 9")
    assert [folded([change])[0].where for change in changes[:2]] == ["line 9", "line 1"]
    assert folded([Change("r", None, "why")])[0].where == ""


# ---- the next steps -----------------------------------------------------------------------------


def commands(told: str) -> list[str]:
    """The commands among the next steps."""
    lines = [line.split("    (")[0].strip() for line in told.partition("Next:")[2].strip().splitlines()]
    return [line for line in lines if line]


@pytest.mark.parametrize(("name", "is_short"), [("out", True), ("a_folder_with_a_long_name_ddp", False)])
def test_a_purpose_that_does_not_fit_stands_below_its_command(
    name: str, is_short: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    told = convert(save(tmp_path, TRAIN), "-o", name).stderr
    assert (f"nb2ddp rehearse {name}    (a few steps" in told) == is_short
    assert (f"nb2ddp rehearse {name}\n      (a few steps" in told) != is_short
    assert max(map(len, told.partition("Next:")[2].splitlines())) <= 80


def test_a_folder_with_a_space_is_quoted_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "my run"
    assert f"Wrote '{folder}/'. Next:" in convert(save(tmp_path, TRAIN), "-o", folder).stderr


def test_the_next_steps_of_a_model_that_fits(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    told = convert(save(tmp_path, TRAIN), "-o", folder, "--nproc", "4").stderr
    assert commands(told) == [
        f"nb2ddp run {folder} --nproc 4",
        f"nb2ddp rehearse {folder}",
        f"nb2ddp push --kaggle {folder}",
    ]


def test_a_model_that_does_not_fit_never_leads_to_push(tmp_path: Path) -> None:
    path, folder = save(tmp_path, LARGE, TRAIN), tmp_path / "out"
    told = convert(path, "-o", folder).stderr
    assert commands(told) == [
        f"nb2ddp convert {path} --strategy balanced",
        f"nb2ddp convert {path} --gpu-memory GIB",
        f"nb2ddp rehearse {folder}",
    ]
    fits = convert(path, "-o", folder, "--gpu-memory", "80").stderr
    assert "push" in fits


def test_a_model_of_which_each_gpu_can_hold_a_share_leads_to_sharding(tmp_path: Path) -> None:
    load = 'from unsloth import FastLanguageModel as F\nmodel, tok = F.from_pretrained("o/m-8B", load_in_4bit=False)'
    path, folder = save(tmp_path, load, TRAIN), tmp_path / "out"
    told = convert(path, "-o", folder).stderr
    assert "shards it over 2 GPUs, about 9 GiB on each" in " ".join(told.split())
    assert commands(told)[:2] == [
        f"nb2ddp convert {path} --strategy fsdp",
        f"nb2ddp convert {path} --strategy balanced",
    ]
    sharded = convert(path, "-o", folder, "--strategy", "fsdp", "--force").stderr
    assert commands(sharded) == [
        f"nb2ddp run {folder} --nproc 2",
        f"nb2ddp rehearse {folder}",
        f"nb2ddp push --kaggle {folder}",
    ]


def test_a_balanced_script_is_started_in_one_process(tmp_path: Path) -> None:
    path, folder = save(tmp_path, "!pip install a", LARGE, TRAIN), tmp_path / "out"
    told = convert(path, "-o", folder, "--strategy", "balanced").stderr
    assert commands(told) == [f"python {folder}/setup_env.py", f"python {folder}/train_ddp.py"]


# ---- folders ------------------------------------------------------------------------------------


def test_of_a_folder_only_what_needs_attention_and_a_table(tmp_path: Path) -> None:
    for name, cells in (("a", [TRAIN]), ("b", [LARGE, TRAIN]), ("c", ["x = ("])):
        save(tmp_path / "all", *cells, name=f"{name}.ipynb")
    told = convert(tmp_path / "all", "--check").stderr
    assert "a.ipynb" not in told
    assert "b.ipynb: converted (sft)" in told
    assert "70 billion parameters" in told
    assert "c.ipynb: declined" in told
    assert re.search(r"^sft +2 +0 +0$", told, re.MULTILINE)
    assert told.endswith("2 converted, 1 declined (nothing written).\n")


def test_of_several_notebooks_the_folders_are_counted(tmp_path: Path) -> None:
    paths = [save(tmp_path, TRAIN, name=f"{name}.ipynb") for name in "ab"]
    assert (
        f"Wrote 2 folders, such as {tmp_path}/out/a_ddp/." in convert(*paths, "-o", tmp_path / "out").stderr
    )


# ---- the forms for programs ---------------------------------------------------------------------


def test_concise_is_whole_lines_on_stdout(tmp_path: Path) -> None:
    path = save(tmp_path, LARGE, TRAIN)
    told = convert(path, "--check", "--output-format", "concise", columns=40).stdout.splitlines()
    document = json.loads(convert(path, "--check", "--json").stdout)
    assert all(line.startswith("a.ipynb: ") and line.endswith("]") for line in told)
    assert len(told) == len({(c["cell"], c["line"], c["why"], c["rule"]) for c in document["changes"]}) + 1
    assert f"a.ipynb: note: {document['notes'][0]} [memory]" in told


def test_json_has_two_names(tmp_path: Path) -> None:
    path = save(tmp_path, TRAIN)
    one, other = convert(path, "--check", "--json"), convert(path, "--check", "--output-format", "json")
    assert one.stdout == other.stdout
    assert one.stderr == other.stderr == ""


def test_github_annotates_declines_and_notes(tmp_path: Path) -> None:
    broken = save(tmp_path / "of, mine: 50%", "x = (")
    large = save(tmp_path, LARGE, TRAIN, name="b.ipynb")
    missing = tmp_path / "c.ipynb"
    told = convert(broken, large, missing, "--check", "--output-format", "github").stdout.splitlines()
    file = str(broken).replace("%", "%25").replace(",", "%2C").replace(":", "%3A")
    bad, third = line_of(broken, "x = ("), line_of(large, LARGE.split("\n")[2])
    assert min(bad, third) > 1
    assert told[0].startswith(f"::error file={file},line={bad},title=nb2ddp read::declined: cell 1, line 1: ")
    assert told[1].startswith(
        f"::warning file={large},line={third},title=nb2ddp memory::cell 1, line 3: 70 billion"
    )
    assert re.fullmatch(rf"::notice file={large},line=1,title=nb2ddp::converted, \d+ changes", told[2])
    assert told[3] == f"::error file={missing},line=1,title=nb2ddp::{missing} does not exist."
    assert len(told) == 4
