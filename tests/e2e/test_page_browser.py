"""The page of `convert --html` in a headless Chromium: nothing is loaded, text stays text, axe finds nothing.

Needs playwright and axe-playwright-python from PyPI and Debian's ``chromium`` (`make engines`).
NB2DDP_SCREENSHOTS names a folder that gets pictures of the page.
"""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.conversion.pipeline import Conversion, convert, convert_notebook
from nb2ddp.options import Options
from nb2ddp.page.page import page as page_of
from nb2ddp.source.notebook import notebook_of
from tests.support import SAMPLES
from tests.support.browser import browser, needs_chromium
from tests.support.helpers import converted, notebook

pytestmark = needs_chromium

SIZES = {"desktop": (1280, 900), "phone": (390, 800)}
TRAINING = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("org/Model-7B")
trainer = Trainer(model, TrainingArguments("out"), train_dataset=data)
trainer.train()
"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
ATTACKS = [
    "</script><script>document.title = 'broken'</script>",
    "</style><img src=x onerror=\"document.title = 'broken'\">",
    "<!--<script>",
    "<svg onload=\"document.title='broken'\"></code></div></div><h1>broken</h1>",
    "<iframe srcdoc='<script>parent.document.title = 1</script>'></iframe>",
    "'\"><base href=http://127.0.0.1:9/><link rel=stylesheet href=x.css>",
]


class Shown:
    """A page in the browser, with all that it asked for and all that it complained of."""

    def __init__(self, browser: Any, path: Path, size: str = "desktop", scheme: str = "light") -> None:
        width, height = SIZES[size]
        self.page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(path.as_uri())
        assert self.requests.pop(0) == path.as_uri()


def written(tmp_path: Path, conversion: Conversion, title: str = "") -> Path:
    path = tmp_path / "page.html"
    path.write_text(page_of(conversion, Options(), title), encoding="utf-8")
    return path


def samples() -> dict[str, Conversion]:
    return {
        "converted": converted("md:# Text", "!pip install trl", "data = [1]\n" + TRAINING, "print(1)"),
        "declined": converted("import os", "y = ("),
    }


@pytest.mark.parametrize("name", samples())
def test_axe_finds_nothing(browser: Any, tmp_path: Path, name: str) -> None:
    axe = pytest.importorskip("axe_playwright_python")
    rules = Path(axe.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
    path = written(tmp_path, samples()[name])
    for size, scheme in (("desktop", "light"), ("phone", "dark")):
        shown = Shown(browser, path, size, scheme)
        shown.page.evaluate(rules)  # past the page's own policy, as a developer's tool is
        found = shown.page.evaluate("() => axe.run()")
        faults = [
            (fault["id"], fault["help"], [node["html"] for node in fault["nodes"][:3]])
            for fault in found["violations"]
        ]
        assert not faults, (size, scheme)
        passed = {rule["id"] for rule in found["passes"]}
        assert {"color-contrast", "link-name", "scrollable-region-focusable"} - passed <= {
            "scrollable-region-focusable"  # where no line is longer than the screen
        }
        shown.page.close()


def test_the_page_fits_each_screen(browser: Any, tmp_path: Path) -> None:
    path = written(tmp_path, convert(SAMPLES / "alpaca_sft.ipynb"))
    for size, (width, _) in SIZES.items():
        for scheme in ("light", "dark"):
            shown = Shown(browser, path, size, scheme)
            assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
            red, *_ = map(float, re.findall(r"[\d.]+", shown.page.evaluate(BACKGROUND)))
            assert (red > 128) == (scheme == "light")
            if folder := os.environ.get("NB2DDP_SCREENSHOTS"):
                shown.page.screenshot(path=str(Path(folder, f"page-{size}-{scheme}.png")))
            shown.page.close()


def test_text_from_outside_runs_nothing_and_loads_nothing(browser: Any, tmp_path: Path) -> None:
    attack = "\n".join(ATTACKS)
    cells = [f"md:{attack}", f"note = {attack!r}\ndata = '''\n{attack}\n'''", TRAINING, f"!echo {ATTACKS[0]}"]
    for code in (cells, [*cells, f"{ATTACKS[0]}\n("]):  # converted, and declined
        conversion = convert_notebook(notebook_of(Path(f"{ATTACKS[0]}.ipynb"), notebook(*code)))
        shown = Shown(browser, written(tmp_path, conversion, title=ATTACKS[0]))
        assert not shown.requests
        assert not shown.complaints
        assert shown.page.title() == f"{ATTACKS[0]} as a DDP script"
        assert shown.page.locator("h1").inner_text() == ATTACKS[0]
        assert shown.page.locator("script").count() == 1
        assert shown.page.locator("body :is(img, svg, iframe, base, link, style)").count() == 0
        assert ATTACKS[3] in shown.page.locator("[data-side=notebook]").all_inner_texts()[0]
        shown.page.close()


def test_the_policy_stops_a_script_that_is_not_the_pages_own(browser: Any, tmp_path: Path) -> None:
    path = written(tmp_path, converted("data = [1]\n" + TRAINING))
    foreign = "<script>document.title = 'broken'</script><img src='http://127.0.0.1:9/x.png'></main>"
    path.write_text(path.read_text(encoding="utf-8").replace("</main>", foreign), encoding="utf-8")
    shown = Shown(browser, path)
    assert shown.page.title() == "test.ipynb as a DDP script"
    assert len(shown.complaints) == 2, "one for the script, one for the picture"
    assert all("Content Security Policy" in text for text in shown.complaints)


def test_the_button_gives_the_script(browser: Any, tmp_path: Path) -> None:
    conversion = convert(SAMPLES / "alpaca_sft.ipynb")
    shown = Shown(browser, written(tmp_path, conversion))
    shown.page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    shown.page.get_by_role("button", name="Copy the script").click()
    shown.page.get_by_text("The script was copied.").wait_for()
    assert shown.page.evaluate("window.copied") == conversion.files["train_ddp.py"]
    shown.page.get_by_label("Only changed cells").check()
    assert not shown.page.get_by_role("heading", name="Cell 12", exact=True).is_visible()
    assert shown.page.get_by_role("heading", name="Cell 9", exact=True).is_visible()
    assert not shown.complaints


def test_keys_lead_from_a_change_to_its_lines(browser: Any, tmp_path: Path) -> None:
    shown = Shown(browser, written(tmp_path, converted("data = [1]\n" + TRAINING)))
    page = shown.page
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to the code"
    link = page.locator(".mark-change a").first
    link.focus()
    entry = page.locator(".mark-change").first
    lines = (entry.get_attribute("data-lines") or "").split()
    assert len(lines) >= 2
    for line in lines:
        assert "lit" in (page.locator(f"#{line}").get_attribute("class") or ""), "both sides light up"
    page.keyboard.press("Enter")
    assert page.url.endswith(f"#{lines[0]}")
    assert page.locator(".row:target").count() == 1
    page.locator(f"#{lines[0]} .marks a.mark-change").first.focus()
    page.keyboard.press("Enter")
    assert page.url.endswith(f"#{entry.get_attribute('id')}")


def test_a_line_stands_at_the_height_of_its_other(browser: Any, tmp_path: Path) -> None:
    conversion = converted("data = [1]\n" + TRAINING)
    assert conversion.script is not None
    number = conversion.script.text.splitlines().index("trainer.train()") + 1
    shown = Shown(browser, written(tmp_path, conversion))
    left, right = (shown.page.locator(place).bounding_box() for place in ("#n1-5", f"#s{number}"))
    assert abs(left["y"] - right["y"]) < 1
    assert left["x"] < right["x"]
    phone = Shown(browser, written(tmp_path, conversion), "phone")
    left, right = (phone.page.locator(place).bounding_box() for place in ("#n1-5", f"#s{number}"))
    assert right["y"] > left["y"], "below each other on a narrow screen"
