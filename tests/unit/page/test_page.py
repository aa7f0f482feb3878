"""The page of a conversion, without a browser: what is in it, how the sides are aligned, and what stays text."""

from __future__ import annotations

import html
import html.parser
import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner

from nb2ddp.cli import main
from nb2ddp.conversion import report
from nb2ddp.conversion.pipeline import Conversion, convert, convert_notebook
from nb2ddp.conversion.terminal import diff
from nb2ddp.options import Options
from nb2ddp.page.alignment import Block, aligned
from nb2ddp.page.highlight import highlighted
from nb2ddp.page.page import page
from nb2ddp.source.notebook import notebook_of
from tests.support import ROOT
from tests.support.helpers import converted, notebook

SAMPLES = sorted((ROOT / "sample_notebooks").glob("*.ipynb"))
NOTEBOOKS = sorted((ROOT / "tests" / "notebooks").glob("*.ipynb"))
TRAINING = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("org/Model-7B")
trainer = Trainer(model, TrainingArguments("out", per_device_train_batch_size=4), train_dataset=data)
trainer.train()
"""


class Reader(html.parser.HTMLParser):
    """Collects elements, ids, what refers to them, and the text of each element with an id."""

    VOID = frozenset({"meta", "input", "br", "link", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.hrefs: list[str] = []
        self.handlers: list[str] = []
        self.text: dict[str, str] = {}
        self._open: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.ids += [found["id"]] if "id" in found else []
        self.hrefs += [found[name] for name in ("href", "src") if name in found]
        self.handlers += [name for name in found if name.startswith("on")]
        if tag not in self.VOID:
            self._open.append((tag, found.get("id", "")))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, place in self._open:
            if place:
                self.text[place] = self.text.get(place, "") + data


def blocks_of(conversion: Conversion) -> list[Block]:
    assert conversion.source is not None
    return aligned(conversion.source, conversion.script)


@pytest.mark.parametrize("path", [*SAMPLES, *NOTEBOOKS], ids=lambda path: path.stem)
def test_both_sides_are_whole_and_in_order(path: Path) -> None:
    conversion = convert(path)
    assert conversion.source is not None
    assert conversion.script is not None
    rows = [row for block in blocks_of(conversion) for row in block.rows]
    rights = [row.right for row in rows if row.right]
    assert [line.number for line in rights] == list(range(1, len(rights) + 1))
    assert "\n".join(line.text for line in rights) + "\n" == conversion.script.text
    cells = [cell for cell in conversion.source.cells if cell.source.strip() or cell.kind == "code"]
    texts = [cell.source.split("\n") if cell.number else cell.source.splitlines() for cell in cells]
    assert [row.left.text for row in rows if row.left] == list(itertools.chain.from_iterable(texts))
    reader = Reader(page(conversion, Options()))
    assert len(reader.ids) == len(set(reader.ids))
    assert {href[1:] for href in reader.hrefs} <= set(reader.ids)
    assert all(href.startswith("#") for href in reader.hrefs)


def test_a_line_stands_beside_what_it_became() -> None:
    conversion = converted("md:# Title\nmore", "data = [1]\n" + TRAINING, "print('done')", "md:the end")
    (block,) = (block for block in blocks_of(conversion) if block.cell == 1)
    pairs = {row.left.text: row.right.text for row in block.rows if row.left and row.right}
    assert pairs["# Title"] == "# # Title"
    assert pairs["data = [1]"] == "data = [1]"
    assert pairs["trainer.train()"] == "trainer.train()"
    added = [row.right.text for row in block.rows if row.left is None and row.right]
    assert any("ddp.wrap_trainer(trainer)" in line for line in added)
    last = blocks_of(conversion)[-1]
    assert [(row.left.text, row.right.text) for row in last.rows if row.left and row.right] == [
        ("the end", "# the end")
    ]


def test_a_change_names_its_lines_on_both_sides() -> None:
    conversion = converted("data = [1]\n" + TRAINING)
    assert conversion.script is not None
    reader = Reader(page(conversion, Options()))
    entries = [text for place, text in reader.text.items() if place.startswith("change-")]
    (entry,) = (text for text in entries if "divide each step" in text)
    lines = conversion.script.text.splitlines()
    (line,) = (number for number, text in enumerate(lines, start=1) if "ddp.wrap_trainer(" in text)
    assert "cell 1, line 5" in entry
    assert re.search(r"script line \d+", entry)
    number = entry.split()[0]
    assert re.search(rf"added: \d*{number}", reader.text[f"s{line}"]), "the line's mark names the entry"
    assert len(entries) == len({(change.rule, change.why) for change in conversion.changes})


def test_figures_declines_and_notes_come_first() -> None:
    text = page(converted("data = [1]\n" + TRAINING), Options())
    assert "4 x 1 on one GPU -&gt; the same 4, divided over 2 GPUs" in text
    assert "7 billion parameters" in text
    assert "does not fit" in text
    assert text.index("7 billion parameters") < text.index('id="code"')
    small = page(converted("data = [1]\n" + TRAINING.replace("7B", "1B")), Options())
    assert ">does not fit<" not in small or ">fits<" in small
    large = page(converted("data = [1]\n" + TRAINING), Options(gpu_memory=300.0))
    assert "300 GiB of one GPU" in large
    assert ">does not fit<" not in large


def test_a_declined_notebook_shows_where() -> None:
    conversion = converted("x = 1\nprint('no training')", "y = (")
    assert conversion.status == "declined"
    reader = Reader(page(conversion, Options()))
    assert "cell 2, line 1" in reader.text["declined-1"]
    assert "y = (" in reader.text["n2-1"]
    assert not any(place.startswith("s") and place[1:].isdigit() for place in reader.ids)
    assert "no training" in reader.text["n1-2"]
    text = page(conversion, Options())
    assert "unchanged" not in text
    assert "ddp_support.py" not in text
    assert "No model's name" not in text, "a notebook that was not understood has none"


def test_a_script_of_one_file_needs_no_other() -> None:
    cells = ("data = [1]\n" + TRAINING,)
    assert "needs ddp_support.py beside it" in page(converted(*cells), Options())
    single = page(converted(*cells, single_file=True), Options(single_file=True))
    assert "needs ddp_support.py beside it" not in single


HOSTILE = [
    "</script><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "<!-- <script>",
    "]]>\" onmouseover='alert(1)' x=\"",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;script&gt;&#60;b&#62;",
    "\u202egnp.exe",
    "\x1b]0;title\x07\x00",
    "\r\x0b\x0c\x85\u2028 x",
    "\ufeff",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_outside_stays_text(text: str) -> None:
    plain = Reader(page(converted("data = [1]\n" + TRAINING), Options()))
    literal = text.replace("\r", " ")
    cells = [f"md:{text}", f"note = {literal!r}  # {literal}\n{text}", TRAINING, f"md:{text}"]
    for code in (cells, [cells[0], f"data = {literal!r}", TRAINING, f"!echo {literal}", cells[3]]):
        conversion = convert_notebook(notebook_of(Path(f"{text}.ipynb"), notebook(*code)))
        made = page(conversion, Options(), title=text)
        reader = Reader(made)
        assert reader.tags.count("script") == plain.tags.count("script") == 1
        assert reader.tags.count("style") == 1
        assert not {"img", "b", "iframe"} & set(reader.tags)
        assert not reader.handlers
        assert "49{%" not in made
        made.encode("utf-8")
        assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", made)


def test_code_keeps_each_character_when_highlighted() -> None:
    source = (
        'def f(x: int = 0) -> str:\n\treturn f"{x!r:>{10}}"  # é\n\n%time !ls $x\n<&>"\'\n@d\nclass A: ...\n'
    )
    marked = [re.sub(r"</?span[^>]*>", "", line) for line in highlighted(source)]
    assert [html.unescape(line) for line in marked] == source.split("\n")
    assert '<span class="kw">def</span>' in highlighted(source)[0]


@pytest.mark.parametrize("text", ["\ufeffx = 1", "x\r\ny", "a\n" * 3, "", "\n\nx", "'''", "f'{"])
def test_highlighting_keeps_the_number_of_lines(text: str) -> None:
    assert len(highlighted(text)) == text.count("\n") + 1


@pytest.mark.parametrize("text", ["f'{" * 20_000, "a." * 40_000, "import a." * 8_000, "%(" * 30_000])
def test_highlighting_one_long_line_takes_seconds_at_most(text: str) -> None:
    began = time.perf_counter()
    assert len(highlighted(text)) == 1
    assert time.perf_counter() - began < 20  # some 2; a line built piece by piece takes minutes


# ---- the command ----------------------------------------------------------------------------------


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["convert", *arguments])
    return result.exit_code, result.output


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    nbformat.write(notebook("data = [1]\n" + TRAINING), tmp_path / "tune.ipynb")
    return tmp_path


def test_the_command_writes_the_page(path: Path) -> None:
    code, said = invoke("tune.ipynb", "--html", "tune.html")
    assert code == 0, said
    assert "nb2ddp: wrote tune.html" in said
    assert "ddp.wrap_trainer" in (path / "tune_ddp" / "train_ddp.py").read_text()
    assert "wrap_trainer" in (path / "tune.html").read_text(encoding="utf-8")
    code, said = invoke("tune.ipynb", "--html", "tune.html", "--check", "-q", "--gpu-memory", "300")
    assert (code, said) == (0, ""), "a page replaces a page"
    assert "300 GiB" in (path / "tune.html").read_text(encoding="utf-8")


def test_the_page_of_a_declined_notebook_is_written(path: Path) -> None:
    nbformat.write(notebook("print(1)"), path / "none.ipynb")
    code, _ = invoke("none.ipynb", "--html", "none.html")
    assert code == 1
    assert 'id="declined-1"' in (path / "none.html").read_text(encoding="utf-8")


def test_no_file_but_a_page_is_replaced(path: Path) -> None:
    before = (path / "tune.ipynb").read_bytes()
    code, said = invoke("tune.ipynb", "--html", "tune.ipynb")
    assert code == 2
    assert "is no page" in said
    assert (path / "tune.ipynb").read_bytes() == before
    assert not (path / "tune_ddp").exists()


@pytest.mark.parametrize("target", ["missing/page.html", "/dev/null", "."])
def test_a_page_that_cannot_be_written_is_refused_first(path: Path, target: str) -> None:
    code, said = invoke("tune.ipynb", "--html", target)
    assert code == 2, said
    assert not (path / "tune_ddp").exists()


def test_a_page_is_of_one_notebook(path: Path) -> None:
    code, said = invoke("tune.ipynb", ".", "--html", "page.html")
    assert code == 2
    assert "one notebook" in said


def test_no_page_without_a_notebook(path: Path) -> None:
    (path / "broken.ipynb").write_text("{")
    code, said = invoke("broken.ipynb", "--html", "page.html")
    assert code == 1
    assert "nothing to show" in said
    assert not (path / "page.html").exists()


LONG: dict[str, Callable[[int], str]] = {
    "blank lines": lambda n: "x = 1" + "\n" * n + "y = 1",
    "comments": lambda n: "# c\n" * n,
}


@pytest.mark.parametrize("name", LONG)
def test_the_page_and_the_diff_take_time_that_grows_with_the_notebook(name: str) -> None:
    def seconds(lines: int) -> float:
        first = "import torch\nfrom trl import SFTConfig, SFTTrainer\n"
        result = converted(
            first, LONG[name](lines), "trainer = SFTTrainer('m', args=SFTConfig('o'))\ntrainer.train()"
        )
        assert result.script is not None
        start = time.process_time()
        page(result, Options())
        list(diff(result))
        report.as_json(result)
        return time.process_time() - start

    # Other processes may slow down one of the two, so each pair is measured at one time.
    assert any(seconds(12000) < 24 * max(seconds(1500), 0.05) for _ in range(3))
