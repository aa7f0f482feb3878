"""The Kaggle bundle: its metadata, what it embeds, and what its code file does when it is run."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import jinja2
import pytest

from nb2ddp import rendering
from nb2ddp.errors import BundleError
from nb2ddp.targets.kaggle import (
    CODE_FILE_LIMIT,
    METADATA_FILE,
    InputSources,
    input_sources,
    kaggle_bundle,
    kernel_title,
    literal,
    oversize,
    slugify,
    tokens_read,
)

SCRIPT = 'print("trained")\n'


def bundle(script: str = SCRIPT, **changes: Any) -> dict[str, str]:
    values: dict[str, Any] = {
        "title": "Tiny run",
        "owner": "ada",
        "setup": None,
        "notebook_name": "tiny.ipynb",
    }
    return kaggle_bundle(script, **values | changes)


def metadata(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bundle(**changes)[METADATA_FILE])
    return found


def code(script: str = SCRIPT, **changes: Any) -> str:
    (text,) = (text for name, text in bundle(script, **changes).items() if name.endswith(".py"))
    return text


# ---------------------------------------------------------------------------------------------------------
# Metadata


def test_the_metadata_asks_for_two_t4_and_stays_private() -> None:
    assert metadata() == {
        "id": "ada/tiny-run",
        "title": "Tiny run",
        "code_file": "tiny-run.py",
        "language": "python",
        "kernel_type": "script",
        "is_private": True,
        "enable_gpu": True,
        "enable_tpu": False,
        "enable_internet": True,
        "machine_shape": "NvidiaTeslaT4",
        "dataset_sources": [],
        "competition_sources": [],
        "kernel_sources": [],
        "model_sources": [],
    }


def test_the_code_file_is_the_one_that_the_metadata_names() -> None:
    assert set(bundle(title="Größe 12")) == {METADATA_FILE, "grosse-12.py"}
    assert metadata(title="Größe 12")["code_file"] == "grosse-12.py"


def test_an_unknown_owner_is_left_to_be_filled_in() -> None:
    assert metadata(owner=None)["id"] == "INSERT_OWNER_SLUG_HERE/tiny-run"


def test_sources_are_listed_once_each_in_the_given_order() -> None:
    found = metadata(
        dataset_sources=["bob/b-set", "ada/a_set/3", "bob/b-set"],
        competition_sources=("titanic",),
        kernel_sources=["ada/first-run"],
        model_sources=["google/gemma/pyTorch/1.1-2b-it/1"],
        enable_internet=False,
    )
    assert found["dataset_sources"] == ["bob/b-set", "ada/a_set/3"]
    assert found["competition_sources"] == ["titanic"]
    assert found["kernel_sources"] == ["ada/first-run"]
    assert found["model_sources"] == ["google/gemma/pyTorch/1.1-2b-it/1"]
    assert found["enable_internet"] is False


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"owner": "ada lovelace"}, "'ada lovelace' is no name of a Kaggle user"),
        ({"owner": ""}, "'' is no name of a Kaggle user"),
        ({"dataset_sources": ["alpaca"]}, "'alpaca' .* look like owner/slug"),
        ({"dataset_sources": ["ada/alpaca\n"]}, "Kaggle's datasets"),
        ({"competition_sources": ["c/titanic"]}, "'c/titanic' .* look like slug"),
        ({"kernel_sources": ["ada/run"]}, "'ada/run' .* look like owner/slug"),
        ({"model_sources": ["google/gemma/pyTorch/2b"]}, "look like owner/model/framework/variation/version"),
        ({"nproc": 3}, "has 2 GPUs, so it cannot run 3 processes"),
    ],
)
def test_what_kaggle_would_refuse_is_refused_in_a_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BundleError, match=words):
        bundle(**changes)


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Fine-tuning Llama", "Fine-tuning Llama"),
        ("Gemma3_(4B).ipynb", "Gemma3 4B ipynb"),
        ("Crème brûlée à la façon de Zoë", "Creme brulee a la facon de Zoe"),
        ("qa", "qa ddp"),
        ("x", "x ddp"),
        ("4-bit Llama", "Notebook 4-bit Llama"),
        ("日本語", "Notebook"),
        ("", "Notebook"),
        ("--- a --- b --- c", "a b c"),
        (
            "Supervised fine-tuning of a small language model on two GPUs",
            "Supervised fine-tuning of a small language model",
        ),
        ("x" * 60, "x" * 50),
        ("on " + "x" * 60, "on " + "x" * 47),
    ],
)
def test_titles(title: str, expected: str) -> None:
    assert kernel_title(title) == expected
    assert kernel_title(expected) == expected


@pytest.mark.parametrize(
    "title", ["Ünïcødé", "7", "a" * 49 + " b", "a" * 49 + "-b", "A.B.C", "x_y" * 30, "ab\ncd"]
)
def test_slugs_are_what_kaggle_takes(title: str) -> None:
    slug = slugify(title)
    assert slug.isascii()
    assert slug == slug.lower()
    assert slug[0].isalpha()
    assert slug[-1].isalnum()
    assert slug.replace("-", "").isalnum()
    assert 5 <= len(slug) <= 50


# ---------------------------------------------------------------------------------------------------------
# Inputs


def test_inputs_with_an_owner_are_known() -> None:
    text = """
    a = load("/kaggle/input/datasets/ada/alpaca/train.csv") + load('/kaggle/input/datasets/ada/alpaca')
    b = "../input/competitions/titanic/train.csv"
    c = "/kaggle/input/notebooks/bob/first-run/lora_model"
    d = Path("/kaggle/input/models/google/gemma/transformers/1.1-2b-it/2/config.json")
    # from /kaggle/input/datasets/bob/words.
    """
    assert input_sources(text) == InputSources(
        datasets=("ada/alpaca", "bob/words"),
        competitions=("titanic",),
        kernels=("bob/first-run",),
        models=("google/gemma/transformers/1.1-2b-it/2",),
    )


def test_inputs_without_an_owner_are_given_back_by_name() -> None:
    text = """
    open("/kaggle/input/alpaca/train.csv"), open("../input/alpaca/test.csv"), open("../input/words/w.txt")
    open("/kaggle/input/datasets/ada"), open("/kaggle/input/models/all.pt")
    open("/kaggle/input/notebooks/ada/run")
    open(f"/kaggle/input/datasets/ada/part-{n}/x"), open(f"/kaggle/input/datasets/ada/part{n}")
    """
    assert input_sources(text) == InputSources(
        unresolved=(
            "alpaca",
            "words",
            "datasets/ada",
            "models/all.pt",
            "notebooks/ada/run",
            "datasets/ada/part-",
            "datasets/ada/part",
        )
    )


@pytest.mark.parametrize(
    "text",
    [
        'os.walk("/kaggle/input")',
        'glob("/kaggle/input/*")',
        'f"/kaggle/input/{name}"',
        'f"/kaggle/input/set-{n}"',
        '"/kaggle/input/datasets"',
        '"../../input/words"',
        '"/data/input/words"',
    ],
)
def test_paths_that_name_no_input(text: str) -> None:
    assert input_sources(text) == InputSources()


# ---------------------------------------------------------------------------------------------------------
# Tokens


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("login(os.environ['HF_TOKEN'])", {"HF_TOKEN": "required"}),
        ("login(environ['HF_TOKEN'])", {"HF_TOKEN": "required"}),
        ("key = os.environ.get('WANDB_API_KEY')", {"WANDB_API_KEY": "optional"}),
        ("key = os.getenv('WANDB_API_KEY', '')", {"WANDB_API_KEY": "optional"}),
        ("os.environ['HF_TOKEN'] = UserSecretsClient().get_secret('HF_TOKEN')", {"HF_TOKEN": "secret"}),
        ("hf = UserSecretsClient().get_secret('hf')", {"hf": "secret"}),
        (
            "try:\n    t = secrets.get_secret('HF_TOKEN')\nexcept Exception:\n    t = None",
            {"HF_TOKEN": "optional"},
        ),
        ("if push:\n    login(os.environ['HF_TOKEN'])", {"HF_TOKEN": "optional"}),
        ("push and login(os.environ['HF_TOKEN'])", {"HF_TOKEN": "optional"}),
        ("os.environ['HF_TOKEN'] = read()\nlogin(os.environ['HF_TOKEN'])", {"HF_TOKEN": "optional"}),
        (
            "a = os.environ['HF_TOKEN'], os.environ['RANK'], os.environ['TOKENIZERS_PARALLELISM']",
            {"HF_TOKEN": "required"},
        ),
        ("config.get('API_KEY'), config['API_KEY'], os.environ[name]", {}),
        ("not Python", {}),
    ],
)
def test_tokens_that_a_script_reads(script: str, expected: dict[str, str]) -> None:
    assert tokens_read(script) == expected


# ---------------------------------------------------------------------------------------------------------
# What is embedded

NASTY = {
    "empty": "",
    "no newline at the end": "x = 1",
    "newlines at both ends": "\n\nx = 1\n\n",
    "docstring": '"""A script."""\nx = 1\n',
    "single triple quotes": "x = '''a\nb'''\n",
    "both triple quotes": "x = \"\"\"a\"\"\"\ny = '''b'''\n",
    "single triple quotes and a double quote at the end": "x = '''a'''\ny = \"",
    "backslashes": 'x = "\\n\\\\ \\x \\N{BULLET} \\u1234"\ny = 1 + \\\n    2\n',
    "a backslash at the end": "x = 1 + \\",
    "two backslashes at the end": "# \\\\",
    "quote at the end": "x = 'a'",
    "non-ASCII": "größe = 'ﬁne 日本 🦥 \u2028 \u00a0 \ufeff'\n",
    "CRLF": "x = 1\r\ny = 2\r\n",
    "carriage return": "x = '\r'\n",
    "tabs, form feed and escape": "if x:\n\ty = 1\n\x0c\n# \x1b[0m\x1a\n",
    "null": "x = '\0'\n",
    "template marks": "x = '{{ a }} {% if b %} {# c #}'\n",
    "many lines": "print('''x''', \"\"\"y\"\"\")\n" * 5000,
}


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY.keys())
def test_embedded_scripts_come_back_exactly(text: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_bytes(code(text, setup=text).encode())
    assert b"\r" not in path.read_bytes()  # the kaggle client reads it with universal newlines
    kernel = runpy.run_path(str(path))
    assert kernel["TRAIN_DDP"] == text
    assert kernel["SETUP_ENV"] == text


def test_ordinary_scripts_stand_there_as_they_are() -> None:
    script = '"""Trains."""\nimport os\n\nx = "a\\n"\n'
    assert f"TRAIN_DDP = r'''\n{script}'''[1:]\n" in code(script)
    quoted = "x = '''a\nb'''\n"
    assert f'TRAIN_DDP = r"""\n{quoted}"""[1:]\n' in code(quoted)


def test_other_scripts_stand_there_line_by_line() -> None:
    assert literal("a = 'é'\r\nb\n") == "(\n    \"a = 'é'\\r\\n\"\n    'b\\n'\n)"


def test_text_that_no_file_can_hold_is_refused() -> None:
    with pytest.raises(BundleError, match="Line 3 of a script holds half a character"):
        code("a\nb\nx = '\ud800'\n")


@pytest.mark.parametrize("name", ['a"""b.ipynb', "a\\N.ipynb", "a\nimport this.ipynb", "größe {{ x }}.ipynb"])
def test_the_notebooks_name_is_only_a_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(code(notebook_name=name), encoding="utf-8")
    assert runpy.run_path(str(path))["TRAIN_DDP"] == SCRIPT


def test_a_script_without_installs_has_no_trace_of_them() -> None:
    assert "setup" not in code(setup=None).lower()
    assert "pypi.org" not in code(setup=None)
    assert "pypi.org" not in code(setup="x = 1\n", enable_internet=False)


def test_the_code_file_is_tidy() -> None:
    for text in (
        code(),
        code(setup="x = 1\n"),
        code(setup="x = 1\n", requires_gpu=False, enable_internet=False),
    ):
        assert "\n\n\n\n" not in text
        assert not [line for line in text.splitlines() if len(line) > 110 or line != line.rstrip()]


def test_a_code_file_that_is_too_large_is_told() -> None:
    assert oversize(bundle()) is None
    sentence = oversize(bundle("x = 1\n" * (CODE_FILE_LIMIT // 6)))
    assert sentence is not None
    assert sentence.startswith("tiny-run.py has 7")
    assert "Kaggle takes 700 KB" in sentence


def test_templates_are_found_in_a_wheel_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "_PACKAGE", tmp_path)
    with pytest.raises(FileNotFoundError, match="installed without its templates"):
        rendering.templates_dir()
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "note.j2").write_text("{% if loud %}\n{{ word }}!\n{% endif %}\nend\n")
    assert rendering.render("note.j2", loud=True, word="é <b>") == "é <b>!\nend\n"
    with pytest.raises(jinja2.UndefinedError, match="'word' is undefined"):
        rendering.render("note.j2", loud=True)


# ---------------------------------------------------------------------------------------------------------
# Run as a plain script, in folders like Kaggle's


class Kaggle:
    """/kaggle in small: the code file in a folder of its own, inputs, and a working folder."""

    def __init__(self, root: Path) -> None:
        self.python = Path(sys.executable)
        self.source, self.work, self.input, self.bin = (root / n for n in ("src", "working", "input", "bin"))
        for folder in (self.source, self.work, self.input, self.bin):
            folder.mkdir()
        self.environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",
            "PATH": f"{self.bin}:{os.environ['PATH']}",
        }
        for name in ("HF_TOKEN", "NB2DDP_CPU", "OMP_NUM_THREADS", "PIP_INDEX_URL"):
            self.environment.pop(name, None)
        self.gpus([])

    def gpus(self, names: list[str]) -> None:
        """Install an nvidia-smi that sees these GPUs; the n-th uses n * 1000 MiB."""
        smi = self.bin / "nvidia-smi"
        used = [f"{number * 1000}" for number in range(1, len(names) + 1)]
        answers = {"name": "\n".join(names), "memory.used": "\n".join(used)}
        cases = "".join(f"--query-gpu={field}) echo '{answer}';;\n" for field, answer in answers.items())
        smi.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}esac\n' if names else "#!/bin/sh\nexit 9\n")
        smi.chmod(0o755)

    def start(self, text: str, **environment: str) -> subprocess.Popen[str]:
        path = self.source / "script.py"
        path.write_text(text, encoding="utf-8")
        self.source.chmod(0o555)
        return subprocess.Popen(
            [self.python, str(path)],
            cwd=self.work,
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def run(self, text: str, **environment: str) -> tuple[int, str]:
        with self.start(text, **environment) as process:
            output, _ = process.communicate(timeout=300)  # a busy machine takes its time
        assert os.listdir(self.source) == ["script.py"]
        return process.returncode, output

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.work / "run.json").read_text())
        return found


@pytest.fixture
def kaggle(tmp_path: Path) -> Iterator[Kaggle]:
    kaggle = Kaggle(tmp_path)
    yield kaggle
    kaggle.source.chmod(0o755)


class _Index(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(403)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def index() -> Iterator[str]:
    """The address of a package index that answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Index) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple/"
        server.shutdown()


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], "no GPU here, 2 needed"),
        (["Tesla P100-PCIE-16GB"], "1 GPU (Tesla P100-PCIE-16GB) here, 2 needed"),
    ],
)
def test_too_few_gpus_stop_the_run_before_anything_else(kaggle: Kaggle, names: list[str], words: str) -> None:
    kaggle.gpus(names)
    code_, output = kaggle.run(code(setup="print('installing')\n"))
    assert code_ == 1
    assert words in output
    assert 'set the accelerator to "GPU T4 x2"' in output
    assert "installing" not in output
    assert os.listdir(kaggle.work) == ["run.json"]
    report = kaggle.report()
    assert words in report.pop("error")
    assert report.pop("seconds").keys() == {"checks"}
    assert report.pop("versions")["python"] == sys.version.split()[0]
    assert report == {
        "exit_code": 1,
        "phase": "checks",
        "world_size": 2,
        "gpus": names,
        "peak_memory_mib": None,
    }


def test_no_internet_stops_the_run_before_the_installs(kaggle: Kaggle) -> None:
    code_, output = kaggle.run(
        code(setup="print('installing')\n").replace("INTERNET_WAIT = 60", "INTERNET_WAIT = 0"),
        NB2DDP_CPU="1",
        PIP_INDEX_URL="http://user:secret@127.0.0.1:9/",
    )
    assert code_ == 1
    assert "the installs need the internet" in output
    assert "installing" not in output
    assert "secret" not in output + json.dumps(kaggle.report())


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import os\nprint(os.environ['HF_TOKEN'])\n", "the script needs HF_TOKEN: attach a private dataset"),
        ("token = client.get_secret('HF_TOKEN')\n", "the script needs HF_TOKEN: attach a private dataset"),
    ],
)
def test_a_missing_token_stops_the_run(kaggle: Kaggle, script: str, words: str) -> None:
    code_, output = kaggle.run(code(script), NB2DDP_CPU="1")
    assert code_ == 1
    assert words in output
    assert words in kaggle.report()["error"]


def test_too_little_disk_stops_the_run(kaggle: Kaggle) -> None:
    code_, output = kaggle.run(code().replace("MIN_FREE_GB = 5", "MIN_FREE_GB = 10**9"), NB2DDP_CPU="1")
    assert code_ == 1
    assert "GB of free disk, at least 1000000000 GB are needed" in output


def test_failing_installs_stop_before_the_training(kaggle: Kaggle, index: str) -> None:
    setup = "import sys\nprint('installing')\nprint('ERROR: No matching x')\nprint('bye')\nsys.exit(3)\n"
    code_, output = kaggle.run(code(setup=setup), NB2DDP_CPU="1", PIP_INDEX_URL=index)
    assert code_ == 1
    assert "installing" in output
    assert "trained\n" not in output.replace("nothing was trained", "")
    report = kaggle.report()
    words = "setup_env.py failed with exit code 3, and nothing was trained: ERROR: No matching x"
    assert report["error"] == words
    assert report["phase"] == "setup"
    assert not (kaggle.work / "logs").exists()


needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torchrun comes with torch"
)

TRAINING = """
import hashlib, os, sys
rank = os.environ["RANK"]
token = hashlib.sha256(os.environ["HF_TOKEN"].encode()).hexdigest()[:8]
print(f"rank {rank} of {os.environ['WORLD_SIZE']} trains with token {token} after {open('installed').read()}")
print(f"rank {rank} warns é", file=sys.stderr)
"""


@pytest.mark.launch
@needs_torch
def test_two_processes_train_after_the_installs(kaggle: Kaggle, index: str) -> None:
    kaggle.gpus(["Tesla T4", "Tesla T4"])
    keys = kaggle.input / "datasets" / "ada" / "keys"
    keys.mkdir(parents=True)
    (keys / "HF_TOKEN.txt").write_text("hf_quite_secret\n")
    (kaggle.work / "train_ddp.py").write_text("my own edits\n")
    setup = "with open('installed', 'a') as file:\n    file.write('one install')\n"
    code_, output = kaggle.run(code(TRAINING, setup=setup), PIP_INDEX_URL=index)
    assert code_ == 0, output
    token = hashlib.sha256(b"hf_quite_secret").hexdigest()[:8]
    assert f"rank 0 of 2 trains with token {token} after one install\n" in output
    assert "rank 0 warns é" in output
    assert "rank 1" not in output
    assert "on Tesla T4, Tesla T4" in output

    rank1 = (kaggle.work / "logs" / "rank1.log").read_text(encoding="utf-8")
    assert f"rank 1 of 2 trains with token {token} after one install\n" in rank1
    assert "rank 1 warns é" in rank1
    assert "rank 0 of 2 trains" in (kaggle.work / "logs" / "rank0.log").read_text(encoding="utf-8")
    assert sorted(os.listdir(kaggle.work / "logs")) == ["rank0.log", "rank1.log"]

    report = kaggle.report()
    assert report["exit_code"] == 0
    assert report["error"] is None
    assert report["world_size"] == 2
    assert report["gpus"] == ["Tesla T4", "Tesla T4"]
    assert report["peak_memory_mib"] == [1000, 2000]
    assert report["seconds"].keys() == {"checks", "setup", "training"}
    assert "torch" in report["versions"]

    assert (kaggle.work / "train_ddp.py").read_text() == TRAINING
    assert (kaggle.work / "train_ddp.py.old").read_text() == "my own edits\n"
    written = "".join(path.read_text() for path in kaggle.work.rglob("*") if path.is_file())
    assert "hf_quite_secret" not in output + written


@pytest.mark.launch
@needs_torch
def test_a_dataset_stands_in_for_secrets_that_no_push_can_attach(kaggle: Kaggle) -> None:
    keys = kaggle.input / "datasets" / "ada" / "keys"
    keys.mkdir(parents=True)
    (keys / "HF_TOKEN").write_text("hf_quite_secret\n")
    script = """
import hashlib
from kaggle_secrets import UserSecretsClient
token = UserSecretsClient().get_secret("HF_TOKEN")
print("has", hashlib.sha256(token.encode()).hexdigest()[:8])
"""
    code_, output = kaggle.run(code(script), NB2DDP_CPU="1")
    assert code_ == 0, output
    assert f"has {hashlib.sha256(b'hf_quite_secret').hexdigest()[:8]}\n" in output
    assert "hf_quite_secret" not in output


@pytest.mark.launch
@needs_torch
@pytest.mark.parametrize(
    ("failing", "recorded"),
    [
        (1, True),
        (0, False),
        *(pytest.param(*pair, marks=pytest.mark.thorough) for pair in ((0, True), (1, False))),
    ],
)
def test_a_failing_rank_fails_the_run_and_is_shown(kaggle: Kaggle, failing: int, recorded: bool) -> None:
    script = f"""
import os, time
from torch.distributed.elastic.multiprocessing.errors import record

def train():
    if os.environ["RANK"] == "{failing}":
        raise RuntimeError("loss is nan é")
    time.sleep(60)

{"record(train)" if recorded else "train"}()
"""
    code_, output = kaggle.run(code(script), NB2DDP_CPU="1")
    assert code_ == 1
    shown = output.partition(f"nb2ddp: rank {failing} failed first:\n")[2]
    assert "Traceback (most recent call last)" in shown
    assert "loss is nan" in shown
    assert "ChildFailedError" not in shown
    report = kaggle.report()
    assert report["exit_code"] == 1
    assert report["phase"] == "training"
    assert report["error"].startswith(f"rank {failing}: RuntimeError: loss is nan")
    assert report["peak_memory_mib"] is None


@pytest.mark.launch
@needs_torch
def test_without_need_for_gpus_the_cpu_will_do(kaggle: Kaggle) -> None:
    code_, output = kaggle.run(
        code(
            "import os\nprint('on', repr(os.environ['CUDA_VISIBLE_DEVICES']))\n", requires_gpu=False, nproc=1
        )
    )
    assert code_ == 0, output
    assert "on ''\n" in output
    assert "nb2ddp: 1 processes on the CPU" in output
    assert kaggle.report()["world_size"] == 1


@pytest.mark.launch
@needs_torch
def test_a_run_that_is_told_to_stop_leaves_no_process(kaggle: Kaggle) -> None:
    script = "import os, time\nopen(f'started-{os.getpid()}', 'w').close()\ntime.sleep(100)\n"
    with kaggle.start(code(script), NB2DDP_CPU="1") as process:
        deadline = time.monotonic() + 60
        while len(started := list(kaggle.work.glob("started-*"))) < 2:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert kaggle.report()["error"] == "interrupted"
    for path in started:
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.name.partition("-")[2]), 0)
