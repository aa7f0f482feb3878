"""Hostile command lines, settings and converted folders: each command ends with a sentence."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nb2ddp.cli import main
from nb2ddp.launch.cell_map import read_cell_map
from tests.support.helpers import notebook
from tests.unit.attack.fuzzer import VALUES
from tests.unit.attack.nasty import TEXTS, UNSAFE

TRAIN = (
    "!pip install trl\n",
    "import os\nfrom trl import SFTConfig, SFTTrainer\ntoken = os.environ.get('HF_TOKEN')\n"
    "trainer = SFTTrainer('m', args=SFTConfig('o'), train_dataset=[])\ntrainer.train()\ntrainer.save_model('m')",
)
WORDS = ["", " ", "0", "-1", "1", "2", "1e999", "nan", "9" * 30, "\u0661", "1:4", "4:1", "~", "/", ".", ".."]
WORDS += [
    "/dev/null",
    "/dev/full",
    "/proc/self/mem",
    "nowhere",
    "nb.ipynb",
    "nb_ddp",
    "kaggle:a/b",
    "kaggle:",
    "-",
]
WORDS += [
    "http:",
    "https://",
    "https://[",
    "https://github.com/",
    "ada/x",
    "a=b",
    "=",
    "@",
    "--",
    "-h",
    "11h",
    "1h1h",
]
WORDS += [
    "slurm",
    "torchrun",
    "kubeflow",
    "accelerate",
    "explicit",
    "balanced",
    "json",
    "github",
    "x" * 5000,
    *TEXTS,
]
WORDS = [word.replace("\0", "").replace("\ud83d", "") for word in WORDS]
FLAGS = {
    "convert": "-o --nproc --batch --wrap --strategy --gpu-memory --owner --title --single-file --output-format "
    "--json --diff --check --force -q -v",
    "emit": "--target --nodes --gpus --cpu --shared-fs --no-shared-fs --save-steps --rdzv-port --max-restarts "
    "--time --partition --account --job-name --mem --cpus-per-task --signal-seconds --module --container-image "
    "--main-process-ip --main-process-port --name --namespace --runtime --image -o --force",
    "push": "--owner --title --dataset --competition --model --kernel --token-dataset --allow-secret --timeout "
    "--image --public --resume-from --yes",
    "rules": "--help",
    "status": "--follow",
    "fetch": "-o --follow",
    "rehearse": "--steps --nproc --data --python --timeout --html --keep",
    "doctor": "--nproc --python",
    "run": "--nproc --log-dir --setup --help",
}
ALONE = set(
    "--cpu --shared-fs --no-shared-fs --force --public --yes --follow --json --diff --check -q -v".split()
)
ALONE |= {"--single-file", "--help", "--setup"}
FAULTS = re.compile(r"INTERNAL ERROR|Traceback \(most|[Pp]lease report|\x1b\[31mred|Error: '|object at 0x")
COLOUR = re.compile(r"\x1b\[\d+(?:;\d+)*m")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a notebook and its conversion, without credentials."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KAGGLE_CONFIG_DIR", str(tmp_path / "home"))
    (folder / "nb.ipynb").write_text(json.dumps(notebook(*TRAIN)), encoding="utf-8")
    assert CliRunner().invoke(main, ["convert", "nb.ipynb"]).exit_code == 0
    return folder


def check(arguments: list[str]) -> int:
    """Run a command; it ends with an exit code, and prints nothing that a terminal would obey."""
    result = CliRunner().invoke(main, arguments, color=True, input="")
    assert result.exception is None or isinstance(result.exception, SystemExit), (arguments, result.exception)
    assert not FAULTS.search(result.output), (arguments, result.output)
    assert not UNSAFE.search(COLOUR.sub("", result.output)), (arguments, result.output)
    assert 0 <= result.exit_code < 128, arguments
    if result.exit_code:
        assert result.output.strip(), (arguments, "it fails without a word")
    return result.exit_code


def line(command: str, dice: random.Random) -> list[str]:
    """A command line with one to four options, and values that are mostly wrong."""
    arguments = [command]
    if dice.random() < 0.9:
        sane = {"rules": "batch", "status": "ada/x", "fetch": "ada/x", "convert": "nb.ipynb"}.get(
            command, "nb_ddp"
        )
        arguments.append(sane if dice.random() < 0.7 else dice.choice(WORDS))
    if command == "emit" and dice.random() < 0.9:
        arguments += ["--target", dice.choice(["slurm", "torchrun", "kubeflow", "accelerate"])]
    if command in ("push",):
        arguments.append("--dry-run")
    for _ in range(dice.randint(0, 3)):
        flag = dice.choice(FLAGS[command].split())
        arguments += [flag] if flag in ALONE else [flag, dice.choice(WORDS)]
    if command in ("rehearse", "doctor", "run"):  # what they do when all is well takes minutes
        arguments += {"rehearse": ["--steps", "0"], "doctor": ["--nproc", "x"], "run": ["--nproc", "x"]}[
            command
        ]
    return arguments


@pytest.mark.parametrize("command", FLAGS)
def test_any_command_line(command: str, here: Path) -> None:
    mine = {path: path.read_bytes() for path in [here / "nb.ipynb"]}
    codes = set()
    for seed in range(COUNT):
        codes.add(check(line(command, random.Random(f"{command} {seed}"))))
    assert command == "rules" or codes - {0}, "some of it is refused"  # rules has no option but --help
    assert {path: path.read_bytes() for path in mine} == mine
    assert not (here.parent / "owned").exists()
    assert not list(here.rglob("owned"))


COUNT = 12  # cases of each kind


def spoiled(data: bytes, dice: random.Random) -> bytes:
    """A file's content, or something in its place."""
    match dice.randrange(6):
        case 0:
            return b""
        case 1:
            return dice.randbytes(50)
        case 2:
            return data[: dice.randrange(len(data) + 1)]
        case 3:
            at = dice.randrange(len(data) + 1)
            return (
                data[:at]
                + dice.choice([b"\0", b"\x1b[31mred", b'"""', b"\\", b"{", b"]", b"\xff"])
                + data[at:]
            )
        case 4:
            return json.dumps(dice.choice(VALUES)).encode()
    try:
        document: Any = json.loads(data)
    except ValueError:
        return data * 2
    keys = list(document) if isinstance(document, dict) else []
    for key in dice.sample(keys, min(len(keys), 2)):
        document[key] = dice.choice(VALUES)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "batch", [0, *(pytest.param(batch, marks=pytest.mark.thorough) for batch in (1, 2, 3))]
)
def test_any_converted_folder(batch: int, here: Path) -> None:
    folder = here / "nb_ddp"
    original = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for seed in range(batch * COUNT, batch * COUNT + COUNT):
        dice = random.Random(seed)
        for path, data in original.items():
            path.write_bytes(data)
        victim = dice.choice(sorted(original))
        if dice.random() < 0.15:
            victim.unlink()
            if dice.random() < 0.5:
                victim.mkdir()
        else:
            victim.write_bytes(spoiled(original[victim], dice))
        for arguments in (
            [
                "emit",
                "--target",
                dice.choice(["slurm", "kubeflow", "torchrun", "accelerate"]),
                "nb_ddp",
                "-o",
                "out",
            ],
            ["push", "nb_ddp", "--dry-run"],
            ["status", "nb_ddp"],
            ["convert", "nb.ipynb"],
            ["convert", "nb.ipynb", "--force"],
        ):
            check(arguments)
        if victim.is_dir():
            victim.rmdir()


NAMES = ["train_ddp.py", "ddp_support.py", "setup_env.py", "report.json", "kaggle/kernel-metadata.json"]
NAMES += [
    ".nb2ddp_staged/report.json",
    "dry_run/report.json",
    "pushed/kernel-metadata.json",
    "../nb2ddp.toml",
]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "pipe") for name in NAMES),
        ("train_ddp.py", "device"),
        ("report.json", "device"),
        ("report.json", "deep"),
    ],
)
def test_no_command_waits_for_what_is_no_file(here: Path, name: str, kind: str) -> None:
    """A pipe in place of a file of a converted folder, a device without an end, JSON nested too deeply."""
    victim = here / "nb_ddp" / name
    victim.parent.mkdir(exist_ok=True)
    victim.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(victim)
    elif kind == "device":
        victim.symlink_to("/dev/zero")
    else:
        victim.write_text("[" * 100_000)

    def late(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    try:
        for arguments in (
            ["emit", "--target", "torchrun", "nb_ddp", "-o", "out"],
            ["push", "nb_ddp", "--dry-run"],
            ["status", "nb_ddp"],
            ["rehearse", "nb_ddp", "--steps", "0"],
            ["convert", "nb.ipynb"],
        ):
            check(arguments)
        read_cell_map(here / "nb_ddp" / "train_ddp.py")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert os.path.lexists(victim) or ".nb2ddp_staged/" in name, "it is not ours"


SETTINGS = [
    "nproc",
    "batch",
    "wrap",
    "strategy",
    "gpu_memory",
    "gpu-memory",
    "owner",
    "title",
    "single_file",
    "x",
]
TOML = [
    "2",
    "-1",
    '"preserve"',
    '"x"',
    "true",
    "nan",
    "inf",
    "1e400",
    "[]",
    "{}",
    "1979-05-27",
    "'''a\nb'''",
    "9" * 40,
]
TOML += [json.dumps(text) for text in TEXTS if "\ud83d" not in text and "\udcff" not in text]


def test_any_settings_file(here: Path) -> None:
    for seed in range(4 * COUNT):
        dice = random.Random(seed)
        name = dice.choice(["nb2ddp.toml", "pyproject.toml"])
        lines = [f"{dice.choice(SETTINGS)} = {dice.choice(TOML)}" for _ in range(dice.randint(1, 2))]
        head = dice.choice(["", "[tool.nb2ddp]", "[nb2ddp]", "[tool]", "nb2ddp = 3", "tool = 3", "[["])
        data = "\n".join([head, *lines]).encode(dice.choice(["utf-8", "utf-16"]))
        Path(name).write_bytes(data if dice.random() < 0.9 else dice.randbytes(30))
        check(["convert", "nb.ipynb", "--check"])
        os.unlink(name)
