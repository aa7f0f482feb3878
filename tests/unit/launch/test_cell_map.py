"""From lines of a script to the notebook's cells: by the report, and by the rulers after an edit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nb2ddp.conversion import report
from nb2ddp.conversion.pipeline import convert
from nb2ddp.ddp_folder import write
from nb2ddp.launch.cell_map import CellPlace, read_cell_map
from tests.support import SAMPLES


@pytest.fixture
def script(tmp_path: Path) -> Path:
    conversion = convert(SAMPLES / "peft_loop.ipynb")
    write(tmp_path, conversion.files, report.as_json(conversion), force=True)
    return tmp_path / "train_ddp.py"


def cells() -> dict[int, list[str]]:
    notebook = json.loads((SAMPLES / "peft_loop.ipynb").read_text(encoding="utf-8"))
    sources = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return {number: source.split("\n") for number, source in enumerate(sources, start=1)}


def test_unchanged_lines_lead_to_the_same_text(script: Path) -> None:
    places = read_cell_map(script)
    known = cells()
    same = 0
    for number, text in enumerate(script.read_text(encoding="utf-8").split("\n"), start=1):
        place = places.place(number)
        if place is not None and place.line is not None:
            same += known[place.cell][place.line - 1].strip() == text.strip()
    assert same > 30
    assert places.place(1) is None
    assert places.place(100_000) is None


def test_an_edited_script_still_has_its_rulers(script: Path) -> None:
    before = read_cell_map(script)
    text = script.read_text(encoding="utf-8")
    wanted = next(n for n in range(1, text.count("\n")) if (place := before.place(n)) and place.cell > 1)
    cell = before.place(wanted)
    script.write_text("# mine\n" + text, encoding="utf-8")
    after = read_cell_map(script)
    assert cell is not None
    assert after.place(wanted + 1) == CellPlace(cell.cell)
    assert str(after.place(wanted + 1)) == f"cell {cell.cell}"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": {}}', '{"files": 3, "source_map": 4}'])
def test_a_report_that_says_nothing(tmp_path: Path, text: str) -> None:
    script = tmp_path / "train_ddp.py"
    script.write_text("# ---- cell 3 ----\nx = 1\n")
    (tmp_path / "report.json").write_text(text)
    assert read_cell_map(script).place(2) == CellPlace(3)
    assert read_cell_map(tmp_path / "missing.py").place(2) is None


@pytest.mark.parametrize("prefix", ["", "[rank1]: "])
def test_frames_of_the_script_get_their_cell(script: Path, prefix: str) -> None:
    places = read_cell_map(script)
    line = next(n for n in range(1, 1000) if places.place(n))
    trace = [
        "Traceback (most recent call last):",
        f'{prefix}  File "{script}", line {line}, in <module>',
        "    step()",
        '  File "/lib/train_ddp.py", line 1, in step',
        "ValueError: boom",
    ]
    assert list(places.annotate(trace)) == [trace[0], f"{trace[1]}  # {places.place(line)}", *trace[2:]]
    assert places.last(trace) == (line, places.place(line))


def test_what_a_worker_of_a_pool_raises_is_placed_where_it_did(script: Path) -> None:
    places = read_cell_map(script)
    inner, outer = [n for n in range(1, 1000) if places.place(n)][:2]
    asked = [
        "Traceback (most recent call last):",
        f'  File "{script}", line {outer}, in <module>',
        "ValueError: boom",
    ]
    raised = [
        "Traceback (most recent call last):",
        f'  File "{script}", line {inner}, in f',
        "ValueError: boom",
    ]
    cause = "The above exception was the direct cause of the following exception:"
    trace = ["multiprocess.pool.RemoteTraceback: ", '"""', *raised, '"""', "", cause, "", *asked]
    assert places.last(trace) == (inner, places.place(inner))
    assert places.last([*trace[:2], "ValueError: boom", *trace[5:]]) == (outer, places.place(outer))
    assert places.last([*raised, "", cause, "", *asked]) == (outer, places.place(outer))
