"""`nb2ddp web` in a headless Chromium, and asked by hand for what it must not give.

Gradio has an environment of its own, `.venv-web` (`make .venv-web/.ready`). NB2DDP_SCREENSHOTS names a folder
that gets pictures of the page.
"""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from nb2ddp.cli.web import web
from nb2ddp.conversion.pipeline import convert
from nb2ddp.options import settings
from nb2ddp.web import limits
from tests.support import ROOT, SAMPLES
from tests.support.browser import browser, needs_chromium
from tests.support.helpers import notebook
from tests.support.limits import LONG
from tests.support.web_pages import (
    MARKER,
    PROBED,
    PYTHON,
    Served,
    Visitor,
    asked,
    endless_server,
    free_port,
    references,
    started,
)

pytestmark = [
    pytest.mark.skipif(not PYTHON.exists(), reason="there is no Gradio: `make .venv-web/.ready` installs it"),
    needs_chromium,
]
ALPACA = SAMPLES / "alpaca_sft.ipynb"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve the page; at its end, nothing is left."""
    command = ("-c", PROBED, "web", "--no-browser", "--host", "127.0.0.1", "--port", str(free_port()))
    folder = tmp_path_factory.mktemp("served")
    with started(folder, *command, GRADIO_SHARE="true", GRADIO_ANALYTICS_ENABLED="False") as found:
        yield found
        found.process.send_signal(signal.SIGTERM)
        assert found.process.wait(30) == 128 + signal.SIGTERM
        assert not list(found.folder.glob("nb2ddp-web-*"))


class Shown:
    """The page in the browser, with all that it asked for."""

    def __init__(self, browser: Any, served: Served, width: int = 1280, scheme: str = "light") -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.requests: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(served.address)
        self.page.get_by_role("button", name="Convert").wait_for(timeout=LONG * 1000)

    def drop(self, path: Path) -> None:
        self.page.locator("input[type=file]").set_input_files(path)

    @property
    def view(self) -> Any:
        return self.page.frame_locator("#view")


def picture(page: Any, name: str) -> None:
    if folder := os.environ.get("NB2DDP_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder, f"web-{name}.png")), full_page=True)


def serious_faults(shown: Shown) -> list[Any]:
    """Return what axe finds serious on the page around the view, which test_page_browser.py looks at."""
    axe = pytest.importorskip("axe_playwright_python")
    shown.page.evaluate(Path(axe.__file__).with_name("axe.min.js").read_text(encoding="utf-8"))
    found = shown.page.evaluate("() => axe.run({exclude: [['#view']]})")
    assert "color-contrast" in {rule["id"] for rule in found["passes"]}
    return [
        (fault["id"], [node["html"] for node in fault["nodes"]])
        for fault in found["violations"]
        if fault["impact"] in ("serious", "critical")
    ]


def downloaded(shown: Shown) -> str:
    """Download the folder, and return its script."""
    with shown.page.expect_download() as download:
        shown.page.get_by_role("button", name="Download the folder").click()
    assert download.value.suggested_filename == "alpaca_sft_ddp.zip"
    with zipfile.ZipFile(download.value.path()) as archive:
        return archive.read("alpaca_sft_ddp/train_ddp.py").decode()


def test_a_dropped_notebook_is_shown_and_its_folder_downloaded(browser: Any, served: Served) -> None:
    shown = Shown(browser, served)
    shown.drop(ALPACA)
    shown.view.get_by_role("heading", name="alpaca_sft.ipynb").wait_for(timeout=LONG * 1000)
    assert "2 x 4 on one GPU -> the same 8, divided over 2 GPUs" in shown.view.locator("main").inner_text()
    assert downloaded(shown) == convert(ALPACA).files["train_ddp.py"]
    with shown.page.expect_download() as download:
        shown.page.get_by_role("button", name="Save this view").click()
    assert Path(download.value.path()).read_text(encoding="utf-8").startswith("<!doctype html>")
    shown.view.get_by_role("button", name="Copy the script").click()
    shown.view.get_by_text("The script was copied.").wait_for()
    assert not served.files(), "the notebook is deleted once it is read"
    # the options are those of a conversion, and count
    shown.page.get_by_role("button", name="Options").click()
    for setting in settings():
        shown.page.get_by_text(setting.help[:60]).first.wait_for()  # the section opens over some frames
    picture(shown.page, "1280-light")
    assert not serious_faults(shown)
    shown.page.get_by_label("nproc").fill("4")
    shown.page.get_by_label("single file").check()
    shown.page.get_by_role("button", name="Convert").click()
    shown.view.get_by_text("divided over 4 GPUs").wait_for(timeout=LONG * 1000)
    assert downloaded(shown) == convert(ALPACA, nproc=4, single_file=True).files["train_ddp.py"]
    assert not [url for url in shown.requests if not url.startswith((served.address, "blob:", "data:"))]
    shown.page.close()


MARIMO = """\
# /// script
# requires-python = ">=3.11"
# dependencies = ["marimo", "torch", "datasets"]
# ///
import marimo

__generated_with = "0.23.8"
app = marimo.App(width="medium")


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"# A small loop")
    return


@app.cell
def _(loader, model, optimizer, torch):
    for rows, wanted in loader:
        loss = torch.nn.functional.mse_loss(model(rows), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item())
    return


@app.cell
def _():
    import marimo as mo
    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.ones(32, 4), torch.ones(32, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    return loader, mo, model, optimizer, torch


if __name__ == "__main__":
    app.run()
"""


def test_a_notebook_of_marimo_is_shown_on_screens_of_both_widths(
    browser: Any, served: Served, tmp_path: Path
) -> None:
    path = tmp_path / "tuning.py"
    path.write_text(MARIMO)
    shown = Shown(browser, served, 1440)
    shown.drop(path)
    shown.view.get_by_role("heading", name="tuning.py").wait_for(timeout=LONG * 1000)
    for width in (1440, 390):
        shown.page.set_viewport_size({"width": width, "height": 900})
        shown.view.get_by_text("ddp.parallelize(model)").first.wait_for()
        picture(shown.page, f"{width}-marimo")
        too_wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert shown.page.evaluate(too_wide) == 0
    with shown.page.expect_download() as download:
        shown.page.get_by_role("button", name="Download the folder").click()
    with zipfile.ZipFile(download.value.path()) as archive:
        assert archive.read("tuning_ddp/train_ddp.py").decode() == convert(path).files["train_ddp.py"]
    shown.page.close()


def test_a_declined_notebook_on_a_dark_phone(browser: Any, served: Served, tmp_path: Path) -> None:
    declined = tmp_path / "declined.ipynb"
    nbformat.write(notebook("y = ("), declined)
    shown = Shown(browser, served, 390, "dark")
    shown.page.get_by_role("button", name="Options").click()
    shown.drop(declined)
    shown.view.get_by_role("heading", name="Declined", exact=True).wait_for(timeout=LONG * 1000)
    picture(shown.page, "390-dark")
    assert not shown.page.get_by_role("button", name="Download the folder").count()
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not serious_faults(shown)
    shown.page.close()


def test_what_cannot_be_converted_is_a_sentence(browser: Any, served: Served, tmp_path: Path) -> None:
    broken = tmp_path / "<img src=x onerror=alert(1)>.ipynb"
    broken.write_text("{")
    shown = Shown(browser, served)
    shown.page.get_by_role("button", name="Convert").click()
    shown.page.get_by_text("Drop a notebook, or paste a link, first.").wait_for(timeout=LONG * 1000)
    shown.drop(broken)
    shown.page.get_by_text("is not a Jupyter notebook").wait_for(timeout=LONG * 1000)
    assert not shown.page.locator("#result img").count()
    shown.page.get_by_label("Or paste a link").fill("http://127.0.0.1:9/a.ipynb")
    shown.page.get_by_label("Or paste a link").press("Enter")
    alert = shown.page.get_by_role("alert").get_by_text("127.0.0.1 is not on the public internet")
    alert.wait_for(timeout=LONG * 1000)
    shown.page.close()


# ---- asked by hand --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/etc/passwd", str(ROOT / "pyproject.toml"), "http://127.0.0.1:9/a.ipynb"])
def test_no_file_of_the_server_is_given(served: Served, path: str) -> None:
    status, text = asked(f"{served.address}/gradio_api/file={path}")
    assert status in (403, 404), text
    visitor = Visitor(served.address)
    for more in ({}, {"is_stream": True}):
        taken, said = visitor.take(path, **more)
        assert not taken
        text += said
    assert "root:" not in text
    assert "build-system" not in text
    assert Path(ROOT / "pyproject.toml").is_file()


def test_the_server_itself_downloads_nothing(served: Served) -> None:
    """A request may name any value as a file at an address, which Gradio would gather in memory, without a limit."""
    visitor = Visitor(served.address)
    with endless_server() as (address, taken):
        assert asked(address.replace("a.ipynb", ""))[0] == 200
        assert len(taken) == 1, "else this shows nothing"
        file = {"path": address, "url": address, "meta": {"_type": "gradio.FileData"}}
        for ended, text in (
            visitor.take(address),
            visitor.take(address, is_stream=True),
            visitor.convert(file),
            visitor.convert([file]),
            visitor.convert(options={"owner": file}),
            visitor.convert(options={"nproc": {"a": [file]}}),
        ):
            assert not ended
            assert "Only a file that was dropped on this page is taken" in text
        assert len(taken) == 1


def test_a_large_upload_is_refused(served: Served) -> None:
    status, _ = Visitor(served.address).upload("../../a.ipynb", b" " * 21_000_000)
    assert status == 413
    assert not served.files()


def test_a_large_request_is_refused_before_it_is_read(served: Served) -> None:
    """Gradio gathers a field that is no file in memory, takes 1000 files at once, and JSON of any length."""
    head = b'--frontier\r\nContent-Disposition: form-data; name="x"\r\n\r\n'
    field = head + b" " * (limits.MOST_UPLOAD + 1) + b"\r\n--frontier--\r\n"
    kind = "multipart/form-data; boundary=frontier"
    assert asked(f"{served.address}/gradio_api/upload", field, kind)[0] == 413
    for chunked in (False, True):
        with socket.create_connection(("127.0.0.1", int(served.address.rpartition(":")[2])), 60) as line:
            size = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 1000000000"
            line.sendall(b"POST /gradio_api/queue/join HTTP/1.1\r\nHost: 127.0.0.1\r\n" + size + b"\r\n\r\n")
            if chunked:
                size_in_hex = b"%x\r\n" % (limits.MOST_REQUEST + 1)
                line.sendall(size_in_hex + b" " * (limits.MOST_REQUEST + 1) + b"\r\n0\r\n\r\n")
            assert line.recv(100).startswith(b"HTTP/1.1 413 ")


TRAINING = f"""\
# {MARKER}
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("org/Model-7B")
trainer = Trainer(model, TrainingArguments("out"), train_dataset=[1])
trainer.train()
"""


def eventually(holds: Callable[[], bool], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not (true := holds()) and time.monotonic() < end:
        time.sleep(0.3)
    return true


def test_what_was_dropped_is_forgotten_when_the_page_is_left(served: Served) -> None:
    visitor = Visitor(served.address)
    data = nbformat.writes(notebook(TRAINING)).encode()
    assert visitor.drop("a.ipynb", data)[0]
    assert not served.files()
    ended, text = visitor.convert(options={"nproc": 4})  # again, with other options
    assert ended
    assert "over 4 GPUs" in text
    assert references(served) >= 1, "else the next line shows nothing"
    visitor.leave()
    assert eventually(lambda: references(served) == 0)
    assert "Drop a notebook, or paste a link, first." in visitor.convert()[1]


def test_equal_files_of_two_users_are_both_converted(served: Served) -> None:
    """Gradio gives both the same place on the disk, and the first that is read is deleted."""
    data = nbformat.writes(notebook(TRAINING)).encode()
    visitors = [Visitor(served.address) for _ in range(3)]
    places = [json.loads(visitor.upload("same.ipynb", data)[1])[0] for visitor in visitors]
    assert len(set(places)) == 1
    for visitor in visitors:
        assert visitor.take(places[0])[0]
        assert "same_ddp.zip" in visitor.convert()[1]
        visitor.take(places[0])  # its page forgot nothing, and a second time it is the file that it has
    for visitor in visitors:
        visitor.leave()
    assert eventually(lambda: references(served) == 0)
    taken, text = Visitor(served.address).take(places[0])
    assert not taken
    assert "is not here any more: drop it again" in text


def test_what_nobody_converts_is_swept_away(served: Served) -> None:
    status, text = Visitor(served.address).upload("never.ipynb", b"{}")
    assert status == 200
    (path,) = (Path(place) for place in json.loads(text))
    for old in [*served.below(), path, path.parent]:
        os.utime(old, (0, 0))
    assert eventually(lambda: not served.below())


@pytest.mark.thorough  # Gradio's import alone takes seconds
def test_a_port_that_is_taken_is_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [str(PYTHON), "-m", "nb2ddp", "web", "--no-browser", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=LONG,
        )
    assert done.returncode == 1
    assert "the page cannot be served at 127.0.0.1, port" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_the_space_serves_the_same_page(tmp_path: Path) -> None:
    port = str(free_port())
    with started(tmp_path, str(ROOT / "spaces" / "app.py"), GRADIO_SERVER_PORT=port) as space:
        status, text = asked(space.address)
        assert status == 200
        assert "Notebook to DDP script" in text
    assert {option.name for option in web.params} >= {"host", "port"}


def test_the_space_asks_for_what_is_tested() -> None:
    header = yaml.safe_load((ROOT / "spaces" / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    pins = (ROOT / "tests" / "stacks" / "web.txt").read_text(encoding="utf-8")
    assert f"\ngradio=={header['sdk_version']}\n" in pins
    assert (ROOT / "spaces" / header["app_file"]).is_file()
    assert header["python_version"] == "3.11"
