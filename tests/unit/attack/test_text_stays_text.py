"""File names, titles and messages stay text in everything that is generated, written or printed."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import nbformat
import pytest
import yaml
from click.testing import CliRunner

from nb2ddp import ddp_folder
from nb2ddp.cli import main
from nb2ddp.conversion.pipeline import Conversion, convert_notebook
from nb2ddp.conversion.report import lines
from nb2ddp.ddp_folder import SUPPORT
from nb2ddp.errors import OptionError
from nb2ddp.jupyter import html
from nb2ddp.jupyter.result import Result
from nb2ddp.monitor.charts import curve_svg
from nb2ddp.monitor.progress import Progress
from nb2ddp.plain_text import docstring_safe, json_text, terminal_safe
from nb2ddp.rehearse.evidence import Fault, Point
from nb2ddp.rehearse.rehearsal import Rehearsal
from nb2ddp.rehearse.report import page
from nb2ddp.source.notebook import notebook_of
from nb2ddp.targets import TARGETS
from nb2ddp.targets.job import Job
from tests.support.helpers import notebook
from tests.unit.attack.nasty import TEXTS, UNSAFE, label

CELLS = (
    "!pip install unsloth",
    "from unsloth import FastLanguageModel\nfrom trl import SFTConfig, SFTTrainer",
    'model, tokenizer = FastLanguageModel.from_pretrained("unsloth/llama")',
    "args = SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4)",
    "trainer = SFTTrainer(model=model, args=args)\ntrainer.train()",
)
nasty = pytest.mark.parametrize("text", TEXTS, ids=label)


def convert(name: str) -> Conversion:
    path = Path(f"{name.replace('/', '|')}.ipynb")
    result = convert_notebook(notebook_of(path, notebook(*CELLS)), title=name)
    assert result.status == "converted", lines(result)
    return result


PLAIN = convert("plain")


def code(text: str) -> tuple[str, str]:
    """The docstring of a generated file, and the rest of its code with the carried files left out."""
    module = ast.parse(text)
    docstring = ast.get_docstring(module) or ""
    body = [node for node in module.body[1:] if not re.match(r"(TRAIN_DDP|SETUP_ENV) =", ast.unparse(node))]
    return docstring, "\n".join(map(ast.unparse, body))


@nasty
def test_a_notebooks_name_stays_in_the_docstring_of_every_file(text: str) -> None:
    made = convert(text)
    slug = next(name for name in made.files if re.fullmatch(r"kaggle/.*\.py", name))
    assert set(made.files) - {slug} == set(PLAIN.files) - {"kaggle/plain.py"}
    for name, content in made.files.items():
        content.encode()
        if name.endswith(".py") and name != SUPPORT:
            docstring, rest = code(content)
            assert rest == code(PLAIN.files["kaggle/plain.py" if name == slug else name])[1]
            assert docstring_safe(f"{text.replace('/', '|')}.ipynb") in docstring.splitlines()[0]
            assert not UNSAFE.search(docstring)
    namespace: dict[str, str] = {}
    exec(made.files[slug][made.files[slug].index("\nSETUP_ENV =") :].partition("\nif __name__")[0], namespace)
    assert namespace["TRAIN_DDP"] == made.files["train_ddp.py"]
    assert namespace["SETUP_ENV"] == made.files["setup_env.py"]
    metadata = json.loads(made.files["kaggle/kernel-metadata.json"])
    assert re.fullmatch(r"[a-z0-9-]{5,50}", metadata["id"].partition("/")[2])


OPTIONS: dict[str, dict[str, Any]] = {"accelerate": {"main_process_ip": "node1"}}


@nasty
@pytest.mark.parametrize("target", TARGETS)
def test_a_notebooks_name_stays_in_a_comment_of_what_starts_it(target: str, text: str) -> None:
    def files(name: str) -> dict[str, str]:
        job = Job(name, "print(1)\n", "print(2)\n", nodes="2")
        return TARGETS[target](**OPTIONS.get(target, {})).files(job)

    plain = files("plain")
    for name, content in files(text).items():
        assert not UNSAFE.search(content)
        commands = [line for line in content.split("\n") if not line.startswith("#")]
        assert commands == [line for line in plain[name].split("\n") if not line.startswith("#")]
        assert len(content.split("\n")) == len(plain[name].split("\n"))
        if name.endswith(".yaml"):
            assert yaml.safe_load(content) == yaml.safe_load(plain[name])
        elif name.endswith((".sh", ".sbatch")):
            subprocess.run(["bash", "-n"], input=content.encode(), check=True)


@nasty
@pytest.mark.parametrize(
    ("target", "option"),
    [
        *(("slurm", name) for name in ("job_name", "partition", "account", "mem", "time", "container_image")),
        *(("kubeflow", name) for name in ("name", "namespace", "runtime", "image")),
        ("accelerate", "main_process_ip"),
        *(("skypilot", name) for name in ("accelerator", "infra", "image_id")),
    ],
)
def test_an_options_value_is_refused_or_stays_one_value(target: str, option: str, text: str) -> None:
    """By the engine's own reading: a comment, a command or another key would be more than a value."""
    given = OPTIONS.get(target, {})
    harmless = {"mem": "4G", "time": "10:00"}.get(option, "harmless")
    try:
        starter = TARGETS[target](**{**given, option: text})
    except OptionError:
        return
    names = {"slurm": "train.sbatch", "kubeflow": "trainjob.yaml", "skypilot": "task.yaml"}
    name = names.get(target, "accelerate.yaml")
    content = starter.files(Job("x", "print(1)\n", None, nodes="2"))[name]
    same = TARGETS[target](**{**given, option: harmless}).files(Job("x", "print(1)\n", None, nodes="2"))[name]
    assert len(content.splitlines()) == len(same.splitlines())
    assert content in {same.replace(harmless, value) for value in (text, shlex.quote(text))}
    assert re.fullmatch(r"[\w.@+:/-]+", text) or shlex.quote(text) in content


class _Tags(HTMLParser):
    """The elements of a page with the names of their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def pages(text: str) -> dict[str, str]:
    """Every HTML page and fragment, with a text from outside in each place that takes one."""
    point = Point(1, "title", text, (Fault("hang", text),))
    rehearsal = Rehearsal(
        text,
        2,
        (point,),
        ((1.0, 2.0), (1.5, 2.5)),
        ({"what": text, "by": text, "why": text, "times": 1},),
        (text,),
        ((0, text),),
        1.0,
        datetime(2026, 1, 1),
        {text: text},
    )
    result = Result([Path(text)], exit_code=1, seconds=1.0, folder=Path("x"), records=[], error=text)
    assert PLAIN.script is not None
    path = text.replace("\ud83d", "")  # of halves, file names hold those of bytes that are no UTF-8
    live = html.live_html(Progress(), title=text, seconds=1, loads=(), logs={text: path}, state="running")
    return {
        "rehearsal": page(rehearsal),
        "result": result._repr_html_(),
        "live": live,
        "script": html.script_html(PLAIN.script, [text], [text]),
        "curve": curve_svg({text: [(0, 1), (1, 2)]}),
    }


PLAIN_PAGES = pages("plain")


@nasty
@pytest.mark.parametrize("place", PLAIN_PAGES)
def test_a_text_adds_nothing_to_a_page_but_text(place: str, text: str) -> None:
    made = pages(text)[place]
    assert not UNSAFE.search(made)
    assert _Tags(made).tags == _Tags(PLAIN_PAGES[place]).tags
    if place == "curve":
        ElementTree.fromstring(made)


@nasty
def test_a_report_holds_any_text_and_is_utf_8(tmp_path: Path, text: str) -> None:
    ddp_folder.write(tmp_path / "out", {"train_ddp.py": ""}, {"notebook": text}, force=False)
    content = (tmp_path / "out" / "report.json").read_text(encoding="utf-8")
    assert not UNSAFE.search(content)
    assert json.loads(content)["notebook"] == text
    assert json.loads(json_text({"x": [text]})) == {"x": [text]}


@nasty
def test_nothing_raw_reaches_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(f"{text.replace('/', '|')}.ipynb".encode("utf-8", "surrogatepass"))
    nbformat.write(notebook(*CELLS), name)
    Path("declined.ipynb").write_text(json.dumps(notebook(f"x = = {text!r} {text}")))
    Path(f"bad{name}").write_text("no notebook")
    runner = CliRunner()
    for arguments in (
        ["convert", "--diff", "--", name],
        ["convert", "declined.ipynb", f"bad{name}", f"missing{name}"],
        ["convert", "--", name, name],
        ["convert", "--json", "--", f"bad{name}"],
        ["run", "--", f"bad{name}"],
        ["emit", "--target", "slurm", "--job-name", text, "--", f"{Path(name).stem}_ddp"],
        ["emit", "--target", text, "--", name],
        [f"x{text}"],
    ):
        result = runner.invoke(main, arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert not UNSAFE.search(result.output.replace("\r\n", "\n")), arguments
        assert result.output
    assert not Path("owned").exists()


def test_what_a_person_needs_stays_readable() -> None:
    assert docstring_safe("Gemma 3 (4B) - é 中文 🙂.ipynb") == "Gemma 3 (4B) - é 中文 🙂.ipynb"
    assert docstring_safe('a "b" \\n\n') == "a 'b' _n_"
    assert terminal_safe("a\tb\nc \\ é 🙂") == "a\tb\nc \\ é 🙂"
    assert terminal_safe("\x1b[31m\u202e\udcff") == "\\x1b[31m\\u202e\\udcff"
