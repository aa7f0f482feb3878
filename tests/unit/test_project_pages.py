"""What stands in the pages of the project: addresses, the citation, commands."""

from __future__ import annotations

import datetime
import re
import subprocess
from pathlib import Path

import pytest
import yaml

import nb2ddp
from nb2ddp.errors import REPOSITORY
from tests.support import ROOT


def pages() -> list[Path]:
    """Return the Markdown pages and the metadata that the project publishes."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    names = listed.stdout.splitlines() or [str(path.relative_to(ROOT)) for path in ROOT.rglob("*.md")]
    return [ROOT / name for name in names if name.endswith((".md", ".toml", ".cff", ".yml"))]


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_repository_has_one_address(path: Path) -> None:
    ours = r"https?://github\.com/[\w.-]+/nb2ddp\b"
    found = set(re.findall(ours, path.read_text(encoding="utf-8")))
    assert found <= {REPOSITORY}, "nb2ddp.errors.REPOSITORY has the address"


def test_links_into_the_repository_lead_to_files() -> None:
    links = [
        (path, name)
        for path in pages()
        for name in re.findall(
            rf"{REPOSITORY}/(?:blob|tree)/main/([^\s)\"#]+)", path.read_text(encoding="utf-8")
        )
    ]
    assert len(links) > 3
    missing = [(path.name, name) for path, name in links if not (ROOT / name).exists()]
    assert not missing


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == nb2ddp.__version__
    assert citation["repository-code"] == REPOSITORY
    assert {"cff-version", "message", "title", "authors"} <= citation.keys(), "what the format asks for"
    released = citation.get("date-released")
    assert released is None or released <= datetime.date.today()
