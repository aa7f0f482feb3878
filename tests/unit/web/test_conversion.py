"""What the page does with a notebook from outside: the same as `convert`, within limits, and nothing else."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner

from nb2ddp.cli import main
from nb2ddp.conversion.pipeline import convert
from nb2ddp.errors import WebError, install_command
from nb2ddp.options import Options
from nb2ddp.page.page import page
from nb2ddp.source.inputs import file_name
from nb2ddp.web import conversion, worker
from nb2ddp.web.conversion import Answer, Upload, converted
from nb2ddp.web.limits import MOST_BYTES
from nb2ddp.web.worker import answer
from tests.support import SAMPLES
from tests.support.helpers import notebook
from tests.support.tokens import TOKENS
from tests.support.web_pages import endless_server

SAMPLE = SAMPLES / "alpaca_sft.ipynb"
TRAINING = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("org/Model-7B")
trainer = Trainer(model, TrainingArguments("out"), train_dataset=[1])
trainer.train()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, of which none is left."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert not list(folder.iterdir())


def upload(*cells: str, name: str = "test.ipynb") -> Upload:
    return Upload(name, nbformat.writes(notebook(*cells)).encode())


def in_process(folder: Path, given: Upload) -> Answer:
    """What the converting process answers, without the time that its start takes."""
    (folder / given.name).write_bytes(given.data)
    with contextlib.chdir(folder):
        return Answer(**answer(given.name, False, {}))


def unpacked(found: Answer) -> dict[str, bytes]:
    assert found.status == "converted", found.sentence
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(found.archive))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_folder_is_the_one_that_convert_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(SAMPLE.name).write_bytes(SAMPLE.read_bytes())
    found = converted(Upload(SAMPLE.name, SAMPLE.read_bytes()), {"nproc": 4.0, "owner": "me"})
    files = unpacked(found)
    done = CliRunner().invoke(main, ["convert", SAMPLE.name, "--nproc", "4", "--owner", "me"])
    assert done.exit_code == 0
    folder = tmp_path / "alpaca_sft_ddp"
    written = {
        path.relative_to(tmp_path).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    report = json.loads(files.pop("alpaca_sft_ddp/report.json"))
    expected = json.loads(written.pop("alpaca_sft_ddp/report.json"))
    assert files.pop("alpaca_sft_ddp/alpaca_sft.ipynb") == SAMPLE.read_bytes()
    assert files == written
    assert {**report, "files": {}} == {**expected, "files": {}, "script": "train_ddp.py"}
    assert set(expected["files"]) == set(report["files"]) - {"alpaca_sft.ipynb"}
    assert found.name == "alpaca_sft_ddp.zip"
    assert found.commands.splitlines() == [
        "unzip alpaca_sft_ddp.zip && cd alpaca_sft_ddp",
        "python setup_env.py    # once: what the notebook installs",
        "torchrun --standalone --nproc_per_node=4 train_ddp.py",
    ]
    assert found.page == page(convert(SAMPLE, nproc=4, owner="me"), Options(nproc=4, owner="me"))


def test_a_notebook_that_is_declined_has_a_page_and_no_folder(tmp_path: Path) -> None:
    found = in_process(tmp_path, upload("y = ("))
    assert (found.status, found.archive, found.name) == ("declined", "", "")
    assert "this is not valid Python" in found.page


def test_a_secret_is_warned_of(tmp_path: Path) -> None:
    found = in_process(tmp_path, upload(f"token = '{TOKENS['huggingface-token'][0]}'", TRAINING))
    assert "take it out, read it from the environment" in found.page


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("x.ipynb", b"{", "x.ipynb is not a Jupyter notebook"),
        ("x.ipynb", b"", "x.ipynb is not a Jupyter notebook"),
        ("x.ipynb", b"\xff\xfe\x00\xd8\xd8", "x.ipynb"),
        ("x.ipynb", b"[" * 140_000, "x.ipynb is not a Jupyter notebook"),
        ("x.ipynb", b"[" * 200_000, "holds more than a notebook's cells"),
        ("x.py", b"import os", "without `# %%` lines"),
        ("x.exe", b"MZ", "x.exe.ipynb is not a Jupyter notebook"),
    ],
)
def test_what_is_no_notebook_is_refused(
    name: str, data: bytes, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = file_name(name)
    (tmp_path / file).write_bytes(data)
    found = answer(file, False, {})
    assert found["status"] == "failed"
    assert sentence in found["sentence"]
    assert str(tmp_path) not in found["sentence"], "a path of the server"


def test_a_large_file_is_refused() -> None:
    found = converted(Upload("x.ipynb", b" " * (MOST_BYTES + 1)), {})
    assert found.sentence.startswith("x.ipynb has 20 MB, and 20 MB are taken at most")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"nproc": 0}, "nproc cannot be 0"),
        ({"nproc": 2.5}, "nproc cannot be 2.5"),
        ({"nproc": float("nan")}, "nproc cannot be nan"),
        ({"batch": "../x"}, "batch cannot be '../x'"),
        ({"single_file": "yes"}, "single_file cannot be 'yes'"),
        ({"gpu_memory": [1]}, "gpu_memory cannot be [1]"),
    ],
)
def test_a_wrong_option_is_a_sentence(values: dict[str, object], sentence: str) -> None:
    assert sentence in converted(upload("x = 1"), values).sentence


@pytest.mark.parametrize(
    "name",
    [
        "../../../etc/passwd",
        "C:\\Users\\me\\a.ipynb",
        "..",
        "",
        ".hidden.ipynb",
        "a\x00b\x1b[31m.ipynb",
        "\ud800.ipynb",
        "<script>alert(1)</script>.ipynb",
        "é" * 300 + ".ipynb",
        "\U0001f600" * 200,
        "x" * 5000 + ".py",
    ],
)
def test_a_name_becomes_that_of_a_file(name: str, tmp_path: Path) -> None:
    safe = file_name(name)
    assert Path(safe).name == safe
    assert safe.endswith((".ipynb", ".py"))
    assert not safe.startswith(".")
    assert safe.isprintable()
    (tmp_path / safe).write_bytes(b"")


@pytest.mark.parametrize("name", ["train_ddp.py", "ddp_support.py"])
def test_a_notebook_replaces_no_file_that_is_made_of_it(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(f"# %%\n{TRAINING}")
    with contextlib.chdir(tmp_path):
        files = unpacked(Answer(**answer(name, False, {})))
    own = {path.rpartition("/")[2]: text for path, text in files.items()}
    assert b"import ddp_support" in own["train_ddp.py"]
    assert b"def wrap_trainer" in own["ddp_support.py"]
    assert own[f"notebook_{name}"].startswith(b"# %%")


def test_a_name_leads_nowhere_else() -> None:
    found = converted(upload(TRAINING, name="../../a'\";$(x) b/../e.ipynb"), {})
    assert {name.split("/")[0] for name in unpacked(found)} == {"e_ddp"}
    assert not any(".." in name for name in unpacked(found))


def test_a_dropped_file_is_not_imported(temporary: Path) -> None:
    code = f"# %%\nopen({str(temporary / 'executed')!r}, 'w')\n{TRAINING}"
    assert converted(Upload("json.py", code.encode()), {}).status == "converted"
    assert not (temporary / "executed").exists()


def test_without_gradio_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    for name in (
        "GRADIO_ANALYTICS_ENABLED",
        "HF_HUB_DISABLE_TELEMETRY",
        "GRADIO_TEMP_DIR",
        "GRADIO_ALLOWED_PATHS",
    ):
        monkeypatch.setenv(name, "")  # so that they are as before afterwards
    done = CliRunner().invoke(main, ["web", "--no-browser"])
    assert done.exit_code == WebError.exit_code
    assert done.stderr == f"nb2ddp: the page needs Gradio: {install_command('web')}\n"


# ---- limits -------------------------------------------------------------------------------------


def test_a_conversion_that_takes_too_long_is_ended() -> None:
    found = converted(Upload(SAMPLE.name, SAMPLE.read_bytes()), {}, seconds=0.05)
    assert found.sentence.startswith("alpaca_sft.ipynb was not converted in 0 seconds")


def test_a_conversion_that_takes_too_much_memory_is_ended() -> None:
    found = converted(Upload(SAMPLE.name, SAMPLE.read_bytes()), {}, memory=40 * 2**20)
    assert found.sentence.startswith("alpaca_sft.ipynb takes more memory than a conversion may have")


def test_a_library_that_gets_no_memory_is_no_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_it(*_: object) -> None:
        raise ImportError("/lib/unicodedata.so: failed to map segment from shared object")

    monkeypatch.setattr(worker, "_converted", import_it)
    assert "takes more memory" in answer(SAMPLE.name, False, {})["sentence"]


def test_the_converting_process_gets_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("KAGGLE_KEY", "secret")
    show = "import os, json; print(json.dumps({'status': 'failed', 'sentence': ' '.join(os.environ)}))"
    monkeypatch.setattr(conversion, "_START", show)
    names = converted(upload("x = 1"), {}).sentence.split()
    assert "PATH" in names
    assert not {"HF_TOKEN", "KAGGLE_KEY"} & set(names)


def test_a_process_that_ends_without_an_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "_START", "raise SystemExit('no answer')")
    assert "INTERNAL ERROR, no answer" in converted(upload("x = 1"), {}).sentence


# ---- links --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "link",
    [
        *(
            "",
            "-",
            "/etc/passwd",
            "~/.ssh/id_rsa",
            "file:///etc/passwd",
            "FILE:///etc/passwd",
            "ftp://x.org/a",
        ),
        *(
            "kaggle:me/run",
            "https://www.kaggle.com/code/me/run",
            "data:application/json,{}",
            "\\\\host\\a.ipynb",
        ),
    ],
)
def test_what_is_no_link_is_refused(link: str) -> None:
    found = answer(link, True, {})
    assert found["status"] == "failed"
    assert "it has to begin with https:// or http://" in found["sentence"]


@pytest.fixture
def hits() -> Iterator[list[str]]:
    """A server of this machine; what it was asked for, its address first."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    asked = [str(server.server_address[1])]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0.0.0.0", "[::ffff:127.0.0.1]"],
)
def test_a_link_to_this_machine_is_refused(
    host: str, hits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{hits[0]}")  # which would fetch it for us
    found = answer(f"http://{host}:{hits[0]}/a.ipynb", True, {})
    assert "is not on the public internet" in found["sentence"]
    assert len(hits) == 1


def test_a_link_through_the_worker_is_refused_too(hits: list[str]) -> None:
    found = converted(f"http://127.0.0.1:{hits[0]}/a.ipynb", {})
    assert "is not on the public internet" in found.sentence
    assert len(hits) == 1


def test_a_link_to_a_large_file_is_read_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nb2ddp.source.public_net.is_public", lambda _: True)
    with endless_server() as (link, taken):
        found = answer(link, True, {})
        assert found["sentence"] == f"{link} is larger than 20 MB; clear its outputs, and save it."
        assert taken[0] < MOST_BYTES + 40_000_000, "of 500 MB, with what the connection held"
