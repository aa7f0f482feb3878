"""The published ledger: its pages and the claim on the first page are those that its JSON gives."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from nb2ddp.rehearse.ledger import Row, VerdictKind
from tests.support import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import ledger_page  # type: ignore[import-not-found]

PUBLISHED = ROOT / "docs" / "ledger"


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    found, _ = ledger_page.load(PUBLISHED)
    return list(found.values())


def test_the_claim_in_the_readme_is_the_ledgers(rows: list[Row]) -> None:
    readme = (ROOT / "README.md").read_text()
    assert ledger_page.BLOCK.search(readme), "the README has no place for the ledger's claim"
    assert ledger_page.with_claim(readme, rows) == readme, "python benchmarks/ledger.py --page writes it"


def test_the_page_and_the_curves_are_the_ledgers(rows: list[Row]) -> None:
    held = json.loads((PUBLISHED / "ledger.json").read_text())
    expected = ledger_page.page(rows, held["left_out"], held["about"])
    assert (PUBLISHED / "index.md").read_text() == expected, "python benchmarks/ledger.py --page writes it"
    curves = {ledger_page.curve_of(row) for row in rows if len(row.losses) > 1}
    assert curves == {str(path.relative_to(PUBLISHED)) for path in PUBLISHED.glob("curves/*.svg")}


def test_the_published_ledger_is_silent_about_nothing(rows: list[Row]) -> None:
    assert len(rows) >= 80
    assert [row.name for row in rows if row.verdict == "different"] == []
    assert all(row.reason for row in rows if row.verdict not in ("same", "different"))
    assert {row.ranks for row in rows} >= {2, 3}
    assert {row.stack for row in rows} == {"newest", "kaggle", "gpu"}


def test_the_summary_counts() -> None:
    kinds: list[tuple[VerdictKind, float]] = [("same", 1e-7), ("said", 0.1), ("different", 0.1)]
    rows = [Row(f"n{n}", "newest", 2, kind, loss_difference=off) for n, (kind, off) in enumerate(kinds)]
    rows[0].as_it_is, rows[0].as_it_is_losses, rows[0].as_it_is_difference = "trains", [1.0], 0.5
    rows[1].as_it_is = "fails: OSError"
    said = " ".join(ledger_page.summary(rows).split())
    assert (
        "3 notebooks and programs of this repository, on 2 ranks (CPU, gloo), 3 rows. 1 are the run of one process"
        in said
    )
    assert "losses within 1e-07" in said
    assert "**1 differ silently**" in said
    assert "in 2 rows: 1 fail, 1 train something else, and in 0 every rank trains the whole" in said
    family = Row("family_peft_peft", "newest", 2)
    said = ledger_page.summary([*rows, family])
    assert "3 notebooks and programs of this repository" in said
    assert "4 rows, 1 of them rehearsals of public notebooks (4 steps, a tiny model)." in said


def test_a_page_shows_texts_of_errors_as_text(tmp_path: Path) -> None:
    row = Row("a_b", "newest", 2, "failed", "the script: TypeError: <lambda>|x* [y]")
    ledger_page.write({row.name: row}, {"c newest 2": "<gone>"}, tmp_path)
    page = (tmp_path / "index.md").read_text()
    assert r"TypeError: \<lambda\>\|x\* \[y\]" in page
    assert r"| c newest 2 | \<gone\> |" in page
    assert json.loads((tmp_path / "ledger.json").read_text())["rows"][0]["notebook"] == "a_b"
