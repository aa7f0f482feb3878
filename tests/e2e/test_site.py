"""The documentation site: it builds without a warning, names all there is, and loads nothing from elsewhere."""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import nb2ddp
from nb2ddp.cli import main
from nb2ddp.errors import REPOSITORY, Nb2ddpError
from nb2ddp.rewriting.runtime_calls import helpers
from nb2ddp.rules import RULES
from tests.support import ROOT
from tests.support.browser import browser, needs_chromium

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
    return text_of_html(path.read_text(encoding="utf-8"))


def text_of_html(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page))


def test_each_rule_command_and_error_has_its_place(site: Path) -> None:
    rules = (site / "rules.html").read_text(encoding="utf-8")
    assert all(f'<h2 id="{rule.name}">' in rules for rule in RULES)
    assert all(f"nb2ddp {name}" in text_of(site / "commands.html") for name in main.commands)
    assert all(kind.__name__ in text_of(site / "exit_codes.html") for kind in Nb2ddpError.__subclasses__())
    assert "How a notebook travels" in text_of(site / "architecture.html")
    assert "python benchmarks/gpus.py prepare FOLDER" in text_of(site / "measured.html")


def test_each_symptom_says_what_to_do(site: Path) -> None:
    page = (site / "troubleshooting.html").read_text(encoding="utf-8")
    symptoms = re.split(r"<h3", page)[1:]
    assert len(symptoms) > 15
    assert all("<strong>Do.</strong>" in part or "<strong>Why" in part for part in symptoms)


def test_what_scripts_call_is_found_by_its_name(site: Path) -> None:
    """The search has a place for each function of `ddp`, and takes a name with underscores for one word."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {entry["title"] for entry in index["docs"] if entry["location"].startswith("api.html#")}
    for name in ("nb2ddp.convert", "_ddp.losses", *(f"ddp.{name}" for name in helpers())):
        assert f"<code>{name}</code>" in places or name in places, name
    separator = index["config"]["separator"]
    assert re.split(separator, "ddp.check_replicas(ddp_model)")[:2] == ["ddp", "check_replicas"]


@needs_chromium
def test_what_is_typed_comes_first_or_second(site: Path, browser: Any) -> None:
    """Each name that Python code may call, and an option with its dashes, lead to their own section."""
    public = [f"nb2ddp.{name}" for name in nb2ddp.__all__] + [f"ddp.{name}" for name in helpers()]
    wanted = {name: f"#{name.replace('.', '').lower()}" for name in public}
    wanted |= {"wrap_trainer": "#ddpwrap_trainer", "--upload-data": "#your-own-data-and-models"}
    is_there = """hash => [...document.querySelectorAll(".md-search-result__link")]
        .filter(link => link.hash).slice(0, 2).some(link => link.hash === hash)"""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        typed = page.locator("input.md-search__input")
        typed.click()
        for name, place in wanted.items():
            typed.fill(name[:-1])
            page.keyboard.type(name[-1])  # the search begins with a key
            page.wait_for_function(is_there, arg=place)
            assert typed.input_value() == name
        page.close()
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_each_entry_of_the_api_says_what_it_does(site: Path) -> None:
    page = (site / "api.html").read_text(encoding="utf-8")
    entries = re.findall(
        r'<h[34] id="[^"]*"><code>(.*?)</code>.*?</h[34]>(.*?)(?=<h[234] |</article>)', page, re.DOTALL
    )
    assert len(entries) > 40
    assert not [name for name, body in entries if "<p>" not in body]
    (example,) = (body for name, body in entries if name == "ddp.main_process_only")
    assert re.search(r"with ddp.*is_main.*\n\s+if is_main", text_of_html(example))


def test_each_page_leads_on_and_to_the_repository(site: Path) -> None:
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        if page.name != "404.html":
            assert 'class="md-footer__link' in text, page
            assert f'href="{REPOSITORY}"' in text, page


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 20
    for page in pages:
        text = page.read_text(encoding="utf-8")
        text = re.sub(r'<link rel="canonical"[^>]*>', "", text)  # says where the page is
        loaded = re.findall(r"""<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=["']?(//|https?:)""", text)
        assert 'data-md-component="source"' not in text, "it asks api.github.com"
        assert not [*loaded, *re.findall(r"url\(['\"]?https?:|@import", text)], page


def test_no_page_shows_markup_of_another_kind(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not re.search(r"\.\. code-block::|:func:|``", text_of(page)), page
