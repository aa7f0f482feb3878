"""A JupyterLab as a process, and clicks in it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

from tests.support.limits import LONG

# All cells are in the page, whether they can be seen or not, and nothing pops up.
SETTINGS = {
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


@contextlib.contextmanager
def lab_with(
    folder: Path, cells: Sequence[str], *, python: Path | str = sys.executable, **more: str
) -> Iterator[str]:
    """Serve a JupyterLab with the notebook ``run.ipynb`` of these cells; give its address."""
    notebooks, settings = folder / "notebooks", folder / "settings"
    notebooks.mkdir()
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = new_notebook(cells=[new_code_cell(cell) for cell in cells], metadata={"kernelspec": kernel})
    nbformat.write(made, notebooks / "run.ipynb")
    for name, values in SETTINGS.items():
        path = settings / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--no-browser", "--allow-root", f"--port={port}", "--IdentityProvider.token="]
    options.append("--ServerApp.disable_check_xsrf=True")  # a session is started without the page
    environment = {
        **os.environ,
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "IPYTHONDIR": str(folder / "ipython"),
        "CUDA_VISIBLE_DEVICES": "",
        **more,
    }
    command = [str(python), "-m", "jupyterlab", *options, f"--ServerApp.root_dir={notebooks}"]
    with (folder / "lab.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + LONG
        while True:
            try:
                urllib.request.urlopen(f"{address}/api/status").close()
                break
            except OSError:
                assert time.monotonic() < deadline, (folder / "lab.log").read_text()
                time.sleep(0.2)
        yield f"{address}/lab/tree/run.ipynb"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)


def open_notebook(page: Any, address: str) -> None:
    """Open a notebook in a browser's page, and wait until its kernel is ready.

    The kernel is started before: where JupyterLab starts it on a busy machine, it may ask for another one.
    """
    server = address.partition("/lab/")[0]
    session = {"path": "run.ipynb", "name": "run.ipynb", "type": "notebook", "kernel": {"name": "python3"}}
    body = json.dumps(session).encode()
    urllib.request.urlopen(urllib.request.Request(f"{server}/api/sessions", body, method="POST")).close()
    page.goto(address)
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    page.get_by_text(re.compile(r"\| Idle")).wait_for()


def run_all_cells(page: Any) -> None:
    """Click, and wait until the first cell has run; answer where JupyterLab asks for a kernel, and click again."""
    deadline = time.monotonic() + LONG
    clicked = False
    while not re.search(r"\d", page.locator(".jp-InputPrompt").first.inner_text()):
        assert time.monotonic() < deadline, prompts(page)
        if page.locator(".jp-Dialog").count():
            page.locator(".jp-Dialog .jp-mod-accept").click()
            page.wait_for_timeout(1000)
            clicked = False
        elif not clicked and page.get_by_text(re.compile(r"\| Idle")).count():
            page.get_by_role("menuitem", name="Run", exact=True).click()
            page.get_by_text("Run All Cells", exact=True).first.click()
            clicked = True
        page.wait_for_timeout(200)


def prompts(page: Any) -> list[str]:
    """Return what stands before the cells: ``[1]:`` has run, ``[*]:`` waits or runs."""
    return list(page.locator(".jp-InputPrompt").all_inner_texts())
