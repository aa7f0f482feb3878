"""%run_ddp as people see it: a notebook run by clicks in JupyterLab, in a headless Chromium.

Needs jupyterlab and playwright from PyPI and Debian's ``chromium`` (`make engines`).
NB2DDP_SCREENSHOTS names a folder that gets pictures of the live display and of the result.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.e2e.test_magic import COLLECT, DATA, LOOP, MODEL, SAVE

pytest.importorskip("jupyterlab")
playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.launch,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: `make engines` installs it"),
]

# All cells are in the page, whether they can be seen or not, and nothing pops up.
SETTINGS = {
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab with the notebook ``run.ipynb``."""
    notebooks, settings = tmp_path / "notebooks", tmp_path / "settings"
    notebooks.mkdir()
    sources = ["%load_ext nb2ddp", COLLECT + DATA, COLLECT + MODEL, COLLECT + "pause = 0.5"]
    cells = [new_code_cell(source) for source in (*sources, f"%%run_ddp --cpu\n{LOOP}{SAVE}")]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), notebooks / "run.ipynb")
    for name, values in SETTINGS.items():
        path = settings / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--no-browser", "--allow-root", f"--port={port}", "--IdentityProvider.token="]
    environment = {
        **os.environ,
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path / "workspaces"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [sys.executable, "-m", "jupyterlab", *options, f"--ServerApp.root_dir={notebooks}"]
    with (tmp_path / "lab.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{address}/api/status").close()
                break
            except OSError:
                assert time.monotonic() < deadline, (tmp_path / "lab.log").read_text()
                time.sleep(0.2)
        yield f"{address}/lab/tree/run.ipynb"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)


def test_bar_and_curve_move_in_jupyterlab(lab: str) -> None:
    with playwright.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 1000})
        page.set_default_timeout(300_000)
        page.goto(lab)
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
        _run_all(page)
        page.wait_for_selector(".nb2ddp-live", timeout=300_000)
        seen: list[tuple[float, int]] = []
        deadline = time.monotonic() + 120
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


def _run_all(page: Any) -> None:
    """Click until the cells run: after a click that comes too soon JupyterLab asks for a kernel instead."""
    for _ in range(10):
        if page.locator(".jp-Dialog").count():
            page.locator(".jp-Dialog .jp-mod-accept").click()
        else:
            page.get_by_role("menuitem", name="Run", exact=True).click()
            page.get_by_text("Run All Cells", exact=True).first.click()
        page.wait_for_timeout(3000)
        if any(re.search(r"[*\d]", text) for text in page.locator(".jp-InputPrompt").all_inner_texts()):
            return
    raise AssertionError("no cell runs")


def _picture(page: Any, selector: str, name: str) -> None:
    if folder := os.environ.get("NB2DDP_SCREENSHOTS"):
        # the display is replaced as it goes on, so no locator may wait for it to stand still
        page.evaluate("selector => document.querySelector(selector).scrollIntoView()", selector)
        page.screenshot(path=str(Path(folder, name)))
