"""push: what a script reads of this machine is sent, or refused by its name."""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from nb2ddp.kaggle import datasets
from nb2ddp.targets.local_files import local_files
from tests.support.kaggle_client import NOTEBOOK, imported_for_loopback, nb2ddp, server, write_notebook
from tests.support.kaggle_kernel import Kaggle, code
from tests.support.kaggle_server import KaggleServer, fails
from tests.support.tokens import TOKENS

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kaggle") is None, reason="needs the extra [kaggle]")

READS = 'from datasets import load_dataset\nrows = load_dataset("json", data_files="data/my rows.jsonl")'


@pytest.fixture
def folder(server: KaggleServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A converted notebook that reads a file and a model beside it, and writes into a folder of an earlier run."""
    monkeypatch.setattr(datasets, "POLL_SECONDS", 0.01)
    load = NOTEBOOK[1].replace('from_pretrained("m")', 'from_pretrained("./my_model")')
    cells = [NOTEBOOK[0], READS, load, *NOTEBOOK[2:], 'model.save_pretrained("lora")']
    write_notebook(Path("tiny run.ipynb"), cells)
    Path("data").mkdir()
    Path("data/my rows.jsonl").write_text('{"text": "a"}\n')
    Path("data/others.jsonl").write_text("not read\n")
    Path("my_model/parts").mkdir(parents=True)
    Path("my_model/config.json").write_text("{}")
    Path("my_model/parts/a.bin").write_bytes(bytes(range(256)))
    Path("lora").mkdir()
    assert nb2ddp("convert", "tiny run.ipynb", "-o", "tiny").exit_code == 0
    return Path("tiny")


def test_they_are_refused_by_their_names(server: KaggleServer, folder: Path) -> None:
    result = nb2ddp("push", "tiny")
    assert result.exit_code == 1
    assert "the script reads data/my rows.jsonl, my_model: --upload-data sends them" in result.output
    assert not server.pushes
    assert not server.datasets


def test_one_option_sends_them_as_a_private_dataset_that_is_attached(
    server: KaggleServer, folder: Path
) -> None:
    server.dataset_states = ["BLOBS_RECEIVED", "BLOBS_DECOMPRESSED", "READY"]
    result = nb2ddp("push", "tiny", "--upload-data")
    assert result.exit_code == 0, result.output
    (ref,) = server.datasets
    assert ref.startswith("ada/tiny-run-data-")
    assert set(server.unpacked(ref)) == {"data/my rows.jsonl", "my_model/config.json", "my_model/parts/a.bin"}
    assert server.dataset_requests[0]["isPrivate"]
    (push,) = server.pushes
    assert push["datasetDataSources"] == ["bob/words", ref]
    assert f'LOCAL_FROM = "datasets/{ref}"' in push["text"]
    assert 'LOCAL = ["data/my rows.jsonl", "my_model"]' in push["text"]
    assert server.asked.index("CreateDataset") < server.asked.index("SaveKernel")


def test_the_same_files_are_sent_once_and_changed_ones_anew(server: KaggleServer, folder: Path) -> None:
    for _ in range(2):
        assert nb2ddp("push", "tiny", "--upload-data").exit_code == 0
    assert server.asked.count("CreateDataset") == 1
    Path("data/my rows.jsonl").write_text('{"text": "b"}\n')
    assert nb2ddp("push", "tiny", "--upload-data").exit_code == 0
    assert server.asked.count("CreateDataset") == len(server.datasets) == 2


def test_they_may_be_left_out_where_the_script_makes_them(server: KaggleServer, folder: Path) -> None:
    assert nb2ddp("push", "tiny", "--no-upload-data").exit_code == 0
    assert not server.datasets
    assert "LOCAL_FROM" not in server.pushes[0]["text"]


def test_a_dry_run_sends_nothing_and_says_what_it_would(server: KaggleServer, folder: Path) -> None:
    result = nb2ddp("push", "tiny", "--upload-data", "--dry-run", "--owner", "me")
    assert result.exit_code == 0, result.output
    assert "a private dataset would be made of data/my rows.jsonl, my_model" in result.output
    assert not server.asked


def test_a_token_in_them_stops_the_upload(server: KaggleServer, folder: Path) -> None:
    Path("my_model/config.json").write_text(json.dumps({"token": TOKENS["huggingface-token"][0]}))
    for more in ((), ("--dry-run", "--owner", "me")):
        result = nb2ddp("push", "tiny", "--upload-data", *more)
        assert result.exit_code == 22, result.output
        assert TOKENS["huggingface-token"][0] not in result.output
    assert not server.datasets


@pytest.mark.parametrize(("failure", "expected"), [("", 20), ("server", 16)])
def test_what_kaggle_does_not_take_stops_the_push(
    server: KaggleServer, folder: Path, failure: str, expected: int
) -> None:
    if failure:
        server.calls["GetDatasetStatus"] = [fails(500, "try later")]
    else:
        server.dataset_states = ["FAILED"]
    result = nb2ddp("push", "tiny", "--upload-data")
    assert result.exit_code == expected, result.output
    assert not server.pushes


# ---- which files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ('open("rows.jsonl")', ["rows.jsonl"]),
        ('PATH = "rows.jsonl"\nread_csv(PATH)', ["rows.jsonl"]),
        ('load("./model")', ["model"]),
        ('load("model/parts.bin"); load("model")', ["model"]),
        ("import helper, os", ["helper.py"]),
        ("from package.part import x", ["package/__init__.py"]),
        ('"""rows.jsonl"""\nx = 1', []),
        ('open("rows.jsonl", "w")\nopen("rows.jsonl")', []),
        ('open(mode="a", file="rows.jsonl")', []),
        ('frame.to_json("rows.jsonl")\nopen("rows.jsonl")', []),
        ('NAME = "model"\nmodel.save_pretrained(NAME)\nload("model/parts.bin")', []),
        ('Path("rows.jsonl").write_text("x")\nopen("rows.jsonl")', []),
        ('SFTConfig(output_dir="model")', []),
        ('TrainingArguments("model", report_to="none")', []),
        ('FOLDER = "earlier"\nargs = make(FOLDER)\nload("earlier/checkpoint-9")', ["earlier/checkpoint-9"]),
        ('ddp.shell("wget https://x/rows.jsonl -O rows.jsonl")\nopen("rows.jsonl")', []),
        ('glob.glob("model/**/*.bin", recursive=True)', ["model"]),
        ('sorted(Path(".").glob("*.jsonl"))', ["rows.jsonl"]),
        ('print("*" * 9, "*")', []),
        ('ddp.shell("mkdir -p a && cp -r model/parts.bin a/x")', ["model/parts.bin"]),
        ('ddp.shell("wget https://x/rows.jsonl; head rows.jsonl")', []),
        ('open("https://x/rows.jsonl"); open("gone.csv"); open("../secret"); open("")', []),
        ("y = (", []),
    ],
)
def test_a_file_counts_that_is_here_and_that_the_script_does_not_make(
    tmp_path: Path, script: str, names: list[str]
) -> None:
    (tmp_path.parent / "secret").touch()
    kept = "earlier/checkpoint-9/trainer_state.json"
    for name in ("rows.jsonl", "helper.py", "model/parts.bin", "package/__init__.py", kept):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert list(local_files(script, tmp_path).names) == names


def test_a_file_by_its_absolute_path_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.touch()
    found = local_files(f'open({str(path)!r}); open("/dev/null"); open("/kaggle/input/x")', tmp_path)
    assert (found.names, found.absolute) == ((), (str(path),))


def test_no_link_leads_out_of_a_folder_that_is_sent(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "outside").touch()
    (tmp_path / "model" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "model" / "a").touch()
    assert [path.name for path in datasets.files_of(tmp_path / "model")] == ["a"]


# ---- in the kernel ---------------------------------------------------------------------------------


def kernel_code(script: str, names: list[str]) -> str:
    source = {"dataset_sources": ["ada/tiny-data"], "local": ("datasets/ada/tiny-data", names)}
    return code(script, nproc=1, **source)


@pytest.mark.launch
@pytest.mark.parametrize(
    "form",
    ["packed", *(pytest.param(form, marks=pytest.mark.thorough) for form in ("unpacked", "in a folder"))],
)
def test_the_kernel_shows_them_under_their_names_and_leaves_none_in_its_output(
    tmp_path: Path, form: str
) -> None:
    kernel = Kaggle(tmp_path)
    place = kernel.input / "datasets" / "ada" / "tiny-data"
    if form == "packed":
        place.mkdir(parents=True)
        (tmp_path / "from" / "data").mkdir(parents=True)
        (tmp_path / "from" / "data" / "rows.txt").write_text("three rows")
        shutil.make_archive(str(place / "files"), "zip", tmp_path / "from")
    else:
        inner = place / "files" if form == "in a folder" else place
        (inner / "data").mkdir(parents=True)
        (inner / "data" / "rows.txt").write_text("three rows")
    script = 'print("read", open("data/rows.txt").read())\n'
    exit_code, output = kernel.run(kernel_code(script, ["data/rows.txt"]), NB2DDP_CPU="1")
    assert exit_code == 0, output
    assert "read three rows" in output
    assert not list(kernel.work.rglob("rows.txt"))


@pytest.mark.launch
def test_a_file_that_is_not_attached_stops_the_kernel_before_it_trains(tmp_path: Path) -> None:
    kernel = Kaggle(tmp_path)
    exit_code, output = kernel.run(kernel_code("print('trained')\n", ["data/rows.txt"]), NB2DDP_CPU="1")
    assert exit_code == 1
    assert "data/rows.txt is not in datasets/ada/tiny-data" in output
    assert "trained\n" not in output
