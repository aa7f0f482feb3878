"""The documentation site: it builds without a warning, has a page for each rule, and loads nothing from elsewhere."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp.cli import main
from nb2ddp.errors import Nb2ddpError
from nb2ddp.rules import RULES
from tests.support import ROOT

pytest.importorskip("material", reason="mkdocs-material is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def text_of(path: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8")))


def test_each_rule_command_and_error_has_its_place(site: Path) -> None:
    for rule in RULES:
        assert f"{rule.name}</code></h1>" in re.sub(
            r"<a class=\"headerlink.*?</a>", "", (site / "rules" / f"{rule.name}.html").read_text("utf-8")
        )
    commands, troubles = text_of(site / "commands.html"), text_of(site / "troubleshooting.html")
    assert all(f"nb2ddp {name}" in commands for name in main.commands)
    assert all(kind.__name__ in text_of(site / "exit_codes.html") for kind in Nb2ddpError.__subclasses__())
    assert "there are no notebooks in" in troubles or "is not a Jupyter notebook" in troubles
    assert "What it promises" in text_of(site / "promise.html")
    assert "torchrun" in text_of(site / "clusters.html")
    assert "How a notebook travels" in text_of(site / "architecture.html")
    assert "python benchmarks/gpus.py prepare FOLDER" in text_of(site / "measured.html")


def test_a_link_of_the_first_page_to_a_section_leads_to_one(site: Path) -> None:
    links = re.findall(r'href="([\w./]*)#([\w-]+)"', (site / "index.html").read_text(encoding="utf-8"))
    assert ("promise.html", "limits") in links
    for page, section in links:
        assert f'id="{section}"' in (site / (page or "index.html")).read_text(encoding="utf-8"), (
            page,
            section,
        )


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 30
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"""<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=["']?(//|https?:)""", text)
        assert not [*loaded, *re.findall(r"url\(['\"]?https?:|@import", text)], page


def test_no_page_shows_markup_of_another_kind(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not re.search(r"\.\. code-block::|:func:|``", text_of(page)), page
