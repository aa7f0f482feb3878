"""The schema of the report: real reports fit it, and wrong ones do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from nb2ddp.cli import main
from tests.support import ROOT, SAMPLES

NOTEBOOKS = sorted([*SAMPLES.glob("*.ipynb"), *(ROOT / "tests" / "notebooks").glob("*.ipynb")])[:12]


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    document = json.loads((ROOT / "docs" / "report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


def printed(*arguments: str | Path) -> Any:
    return json.loads(CliRunner().invoke(main, ["convert", *map(str, arguments), "--json"]).stdout)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_convert_prints_fits(schema: jsonschema.Draft202012Validator, notebook: Path) -> None:
    schema.validate(printed(notebook, "--check"))


def test_a_written_and_a_declined_and_a_failed_one_fit(
    schema: jsonschema.Draft202012Validator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("idle.py").write_text("# %%\nprint(1)\n")
    Path("broken.ipynb").write_text("{")
    reports = printed(SAMPLES / "alpaca_sft.ipynb", "idle.py", "broken.ipynb")
    assert [report["status"] for report in reports] == ["converted", "declined", "failed"]
    for report in reports:
        schema.validate(report)
    schema.validate(json.loads((tmp_path / "alpaca_sft_ddp" / "report.json").read_text()))


@pytest.mark.parametrize(
    "wrong", [{"status": "maybe"}, {"notes": [1]}, {"another": 1}, {"changes": [{"rule": "x"}]}]
)
def test_another_document_does_not_fit(
    schema: jsonschema.Draft202012Validator, wrong: dict[str, Any]
) -> None:
    report = printed(SAMPLES / "alpaca_sft.ipynb", "--check")
    assert list(schema.iter_errors({**report, **wrong}))
    del report["status"]
    assert list(schema.iter_errors(report))
