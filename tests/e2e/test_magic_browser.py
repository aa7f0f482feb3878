"""%run_ddp as people see it: a notebook run by clicks in JupyterLab, in a headless Chromium.

Needs jupyterlab and playwright from PyPI and Debian's ``chromium`` (`make engines`).
NB2DDP_SCREENSHOTS names a folder that gets pictures of the live display and of the result.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_magic import COLLECT, DATA, LOOP, MODEL, SAVE
from tests.support.jupyterlab import lab_with, open_notebook, prompts, run_all_cells
from tests.support.limits import LONG

pytest.importorskip("jupyterlab")
playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.launch,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: `make engines` installs it"),
]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab with a notebook that trains."""
    sources = ["%load_ext nb2ddp", COLLECT + DATA, COLLECT + MODEL, COLLECT + "pause = 0.5"]
    with lab_with(tmp_path, [*sources, f"%%run_ddp --cpu\n{LOOP}{SAVE}"]) as address:
        yield address


@pytest.mark.thorough
def test_bar_and_curve_move_in_jupyterlab(lab: str) -> None:
    with playwright.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 1000})
        page.set_default_timeout(300_000)
        open_notebook(page, lab)
        run_all_cells(page)
        began = time.monotonic()
        while not page.locator(".nb2ddp-live").count():
            assert time.monotonic() < began + 240, prompts(page)
            page.wait_for_timeout(200)
        seen: list[tuple[float, int]] = []
        deadline = time.monotonic() + LONG
        while not page.locator(".nb2ddp-result").count():
            assert time.monotonic() < deadline, seen
            html = page.locator(".nb2ddp-live").inner_html()
            width = re.search(r"width:\s*([\d.]+)%", html)
            curve = re.search(r'<polyline[^>]* points="([^"]+)"', html)
            assert width
            seen.append((float(width[1]), len(curve[1].split()) if curve else 0))
            if seen[-1][1] == 6:
                _picture(page, ".nb2ddp-live", "live.png")
            time.sleep(0.1)
        widths = [width for width, _ in seen]
        points = [count for _, count in seen if count]
        assert widths == sorted(widths)
        assert len(set(widths)) > 4, widths
        assert points == sorted(points)
        assert len(set(points)) > 4, points
        assert page.locator(".nb2ddp-result svg polyline").count() == 1
        assert page.locator(".nb2ddp-live").count() == 1, "one display, updated in place"
        _picture(page, ".nb2ddp-result", "result.png")
        link = page.locator(".nb2ddp-live a").first.get_attribute("href")
        assert "/files/run_ddp/logs/output.log" in link
        assert "step 11: loss" in page.request.get(link).text()
        browser.close()


@pytest.mark.thorough
def test_a_button_runs_the_magic_in_a_new_cell(tmp_path: Path) -> None:
    line = "%run_ddp run.ipynb --cpu --nproc 2"
    cells = ["%load_ext nb2ddp", f"{line} --button", COLLECT + DATA + MODEL + LOOP + SAVE]
    with lab_with(tmp_path, cells) as lab, playwright.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 1000})
        page.set_default_timeout(LONG * 1000)
        open_notebook(page, lab)
        run_all_cells(page)
        button = page.locator(".nb2ddp-button")
        button.wait_for()
        button.click()
        page.locator(".nb2ddp-result").wait_for()
        inputs = page.locator(".jp-CodeCell .cm-content").all_inner_texts()
        assert [text.strip() for text in inputs[:3]] == [*cells[:2], line]
        _picture(page, ".nb2ddp-button", "button.png")
        browser.close()
    assert (tmp_path / "notebooks" / "model.pt").exists()
    assert "nb2ddp-button" in (tmp_path / "notebooks" / "run.ipynb").read_text(), "saved before it is read"


def _picture(page: Any, selector: str, name: str) -> None:
    if folder := os.environ.get("NB2DDP_SCREENSHOTS"):
        # the display is replaced as it goes on, so no locator may wait for it to stand still
        page.evaluate("selector => document.querySelector(selector).scrollIntoView()", selector)
        page.screenshot(path=str(Path(folder, name)))
