"""The commands and the real Kaggle client, led to tests/support/kaggle_server.py: fixtures."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from click.testing import CliRunner, Result
from nbformat.v4 import new_code_cell, new_notebook

from nb2ddp.cli import main
from nb2ddp.kaggle import calls, credentials
from nb2ddp.kaggle import push as pushing
from nb2ddp.kaggle import watch as watching
from tests.support.kaggle_server import KEY, USER, KaggleServer

NOTEBOOK = [
    '!pip install unsloth\nimport os\nos.environ["HF_TOKEN"]',
    "from unsloth import FastLanguageModel\n"
    'model, tokenizer = FastLanguageModel.from_pretrained("m")\n'
    'data = open("/kaggle/input/datasets/bob/words/train.csv")',
    "from trl import SFTTrainer, SFTConfig\n"
    "trainer = SFTTrainer(model = model, args = SFTConfig(max_steps = 4))",
    "trainer.train()",
]


# What the client's log stream of a run brings, piece by piece.
LOG = [
    "nb2ddp: 2 processes on Tesla T4, Tesla T4; 20 GB of free disk\n",
    "\rMap:  50%|#####     | 160/320 [00:01<00:01, 99.0 examples/s]",
    "\rLoading weights: 100%|##########| 9/9 [00:00<00:00, 1234.5it/s]\n",
    "\r  0%|          | 0/30 [00:00<?, ?it/s]",
    "\r 10%|#         | 3/30 [00:06<00:54,  2.0",
    "0s/it]{'loss': 2.5, 'grad_norm': 1.0, 'epoch': 0.1}\n",
    "\r 40%|####      | 12/30 [00:06<00:09,  2.00it/s]",
    "{'loss': '1.2345', 'grad_norm': '0.5'}\n",
    "done é\n",
]


@pytest.fixture(scope="session")
def imported_for_loopback(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The client reads its environment and makes its folder when it is imported."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "kaggle"]:
        del sys.modules[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("KAGGLE_CONFIG_DIR", str(tmp_path_factory.mktemp("config")))
        patch.setenv("KAGGLE_API_ENVIRONMENT", "LOCALHOST")
        patch.setenv("http_proxy", "http://127.0.0.1:9")
        credentials.user_known_here()


@pytest.fixture
def server(
    imported_for_loopback: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KaggleServer]:
    """A server, the credentials for it, an empty folder to work in, and no pauses."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("KAGGLE"):
            monkeypatch.delenv(name)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(calls, "TIMEOUT", 60.0)
    monkeypatch.setattr(pushing, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(pushing, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.05)
    with KaggleServer().running() as kaggle:
        for name, value in kaggle.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("KAGGLE_USERNAME", USER)
        monkeypatch.setenv("KAGGLE_KEY", KEY)
        yield kaggle


def write_notebook(path: Path, cells: list[Any]) -> Path:
    made = [new_code_cell(cell) if isinstance(cell, str) else cell for cell in cells]
    nbformat.write(new_notebook(cells=made), path)
    return path


@functools.cache
def _converted_once() -> Path:
    """Return a folder of this session with the notebook and what it is converted into."""
    folder = tempfile.TemporaryDirectory(prefix="nb2ddp-")
    atexit.register(folder.cleanup)
    with contextlib.chdir(folder.name):
        write_notebook(Path("tiny run.ipynb"), NOTEBOOK)
        assert nb2ddp("convert", "tiny run.ipynb", "-o", "tiny").exit_code == 0
    return Path(folder.name)


@pytest.fixture
def converted(server: KaggleServer) -> Path:
    """A converted folder, the only one here, and its notebook."""
    shutil.copytree(_converted_once(), Path(), dirs_exist_ok=True)
    return Path("tiny")


def nb2ddp(*arguments: str, input: str | None = None) -> Result:
    result = CliRunner().invoke(main, arguments, input=input)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert "Traceback" not in result.output
    assert KEY not in result.output
    return result
