"""A slice of benchmarks/arguments.py: choices of arguments are the run of one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import arguments
from tests.support.ranks import RankServer

pytest.importorskip("trl")
SLICE = [
    ("train_sampling_strategy", "batch_rebalance"),
    ("label_smoothing_factor", 0.1),
    ("gradient_accumulation_steps", 3),
]


@pytest.mark.parametrize(("argument", "value"), SLICE)
def test_a_choice_is_the_run_of_one_process(trainers: RankServer, argument: str, value: object) -> None:
    row = arguments.judge(trainers, "TrainingArguments", argument, json.dumps(value), 2)
    assert row.verdict == "same", row.words


def test_another_run_is_silent_and_a_value_that_no_process_takes_refused(trainers: RankServer) -> None:
    one = {"logs": [{"loss": 1.0}], "files": ["a"]}
    assert arguments._difference(one, {"logs": [{"loss": 1.0 + 1e-7}], "files": ["a"]}) == ""
    assert arguments._difference(one, {"logs": [{"loss": 1.001}], "files": ["a"]}).startswith(".logs[0].loss")
    row = arguments.judge(trainers, "TrainingArguments", "lr_scheduler_type", '"no such"', 2)
    assert row.verdict == "refused"
    assert "no such" in row.words


def test_the_choices_come_from_the_installed_classes(server: RankServer, tmp_path: Path) -> None:
    program = """
    from benchmarks import arguments
    note(**{kind: list(arguments.choices(kind)) for kind in arguments.CLASSES})
    """
    ended = server.run(tmp_path, program, 0)
    assert ended.codes == [0], ended.text
    assert ended.notes[0].keys() == arguments.CLASSES.keys()
    for found in ended.notes[0].values():
        assert len({argument for argument, value in found if value}) >= 5
        assert all(json.loads(value) is not Ellipsis for _, value in found if value)


def test_the_page_has_a_row_for_each_class_and_no_fault() -> None:
    text = arguments.PAGE.read_text(encoding="utf-8")
    assert all(f"## {kind}\n" in text for kind in arguments.CLASSES)
    assert not [
        line for line in text.splitlines() if any(f"| {fault} |" in line for fault in arguments.FAULTS)
    ]
