"""``nb2ddp run`` as a person meets it: the stage while one waits, the closing block, Ctrl-C, -q."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import nbformat
import pytest

from tests.support.helpers import notebook
from tests.support.launches import PACKAGE_PARENT, needs_proc
from tests.support.limits import LONG

pytestmark = [pytest.mark.launch, needs_proc]

TRAIN = """
import os, sys, time
from pathlib import Path
rank = int(os.environ["RANK"])
def say(text, end="\\n", to=sys.stdout):
    if rank == 0:
        print(text, end=end, file=to, flush=True)
say("\\rLoading weights:  10%|#| 2/21 [00:00<00:02, 9.0it/s, Materializing param=x]", "", sys.stderr)
say("\\rLoading weights: 100%|#| 21/21 [00:00<00:00, 9.0it/s, Materializing param=x]", to=sys.stderr)
time.sleep(2.5)
say("nb2ddp: batch 2 x 2 accumulation steps x 2 processes = 8 per step")
for step in range(1, 5):
    say(f"\\r{step * 25:3}%|##| {step}/4 [00:01<00:02, 2.0it/s]", "", sys.stderr)
    say("\\n{'loss': '%.1f', 'epoch': '1.0'}" % (8 / step))
say("{'train_runtime': '2.0', 'train_samples_per_second': '40.2', 'train_loss': '2.0'}")
if rank == 0:
    for name in ("lora/adapter_config.json", "lora/adapter_model.safetensors", "one.txt"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text('{"task_type": "CAUSAL_LM"}')
say("nb2ddp: 2 replicas equal, bit for bit")
"""
FACTS = {
    "steps": "4, 8 samples each, 40.2 samples/s",
    "loss": "8 -> 2",
    "ranks": "2 replicas equal, bit for bit",
    "written": "lora/ (2 files), one.txt",
    "logs": "logs",
}
LOADS = 'model = AutoPeftModelForCausalLM.from_pretrained("lora")'


def start(folder: Path, script: str, *options: str, to: int = subprocess.PIPE) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(script)
    return subprocess.Popen(
        [sys.executable, "-m", "nb2ddp", "run", "train.py", "--cpu", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PACKAGE_PARENT), "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=to,
        stderr=to,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_the_stage_and_the_closing_block_in_plain_text(tmp_path: Path) -> None:
    process = start(tmp_path, TRAIN)
    out, err = process.communicate(timeout=LONG)
    assert process.returncode == 0, err
    assert re.search(r"^nb2ddp: \[0:\d\d\] loading$", err, re.MULTILINE)
    block = err[err.index("nb2ddp: the run succeeded") :]
    for name, value in FACTS.items():
        assert re.search(rf"^        {name}: +{re.escape(value)}$", block, re.MULTILINE), block
    assert re.search(r"^        time: +0:\d\d on 2 processes, 0:02 of it training$", block, re.MULTILINE)
    assert LOADS in block
    assert "\x1b" not in err
    assert "succeeded" not in out, "stdout is rank 0's"
    assert out.startswith("nb2ddp: batch")


@pytest.mark.thorough
def test_on_a_terminal_of_80_columns(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 80))
    process = start(
        tmp_path, "import sys; print(sys.stdout.isatty(), sys.stderr.isatty())" + TRAIN, to=theirs
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            data = os.read(ours, 1 << 16)
        except OSError:  # the other end is closed
            break
        shown += data
    os.close(ours)
    assert process.wait(60) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).replace("\r\n", "\n")
    assert "True True\n" in text, "rank 0 finds a terminal"
    assert (tmp_path / "logs" / "rank1.log").read_text() == "False False\n"
    block = text[text.index("nb2ddp: the run succeeded") :].splitlines()
    for name, value in FACTS.items():
        assert any(line.split() == [name, *value.split()] for line in block), block
    assert max(len(line) for line in block if LOADS not in line) <= 80
    assert any(line.endswith(LOADS) for line in block), "on one line, so that it can be copied"


def test_quiet_prints_rank_0_and_errors_alone(tmp_path: Path) -> None:
    script = """\
import os, sys, time
print('hello', flush=True)
if os.environ['RANK'] == '1':
    time.sleep(999)
print('there', file=sys.stderr)
{}['key']
"""
    process = start(tmp_path, script, "-q")
    out, err = process.communicate(timeout=LONG)
    assert (process.returncode, out) == (1, "hello\n")
    assert err.startswith("there\nTraceback (most recent call last)")
    assert err.count("KeyError") == 1
    assert "nb2ddp: rank 0 failed first (exit code 1)\n        what it printed is above" in err


def test_what_follows_two_dashes_reaches_torchrun(tmp_path: Path) -> None:
    script = "import os, sys\nprint(os.environ['TORCHELASTIC_MAX_RESTARTS'])\nprint('there', file=sys.stderr)"
    process = start(tmp_path, script, "-q", "--nproc", "1", "--", "--max-restarts=3")
    assert process.communicate(timeout=LONG) == ("3\n", "there\n")
    assert process.returncode == 0


SAVES = """
import time
from pathlib import Path
Path("outputs/checkpoint-20").mkdir(parents=True, exist_ok=True)
Path("outputs/checkpoint-20/trainer_state.json").write_text("{}")
print("saved", flush=True)
time.sleep(999)
trainer = Trainer()
"""


@pytest.mark.parametrize("saves", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_ctrl_c_ends_with_what_is_kept(tmp_path: Path, saves: bool) -> None:
    """And with the command that goes on: all options of this run, and what went to torchrun."""
    script = SAVES if saves else "import time\nprint('saved', flush=True)\ntime.sleep(999)"
    process = start(tmp_path, script, "--log-dir", "my logs", "--", "--max-restarts=0")
    assert process.stdout is not None
    assert process.stdout.readline() == "saved\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LONG)
    assert process.returncode == 130
    last = err.splitlines()[-1]
    if saves:
        assert last == (
            "nb2ddp: stopped by SIGINT; kept: outputs/checkpoint-20; to go on from it: "
            "nb2ddp run train.py --cpu --log-dir 'my logs' --resume -- --max-restarts=0"
        )
        assert "Traceback" not in err, "above the command that goes on"
    else:
        assert (
            last
            == "nb2ddp: stopped by SIGINT; there is no checkpoint of this run that nb2ddp could go on from"
        )


@pytest.mark.thorough
def test_ctrl_c_shows_no_traceback_of_a_quiet_run(tmp_path: Path) -> None:
    process = start(tmp_path, SAVES, "-q")
    assert process.stdout is not None
    assert process.stdout.readline() == "saved\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LONG)
    assert process.returncode == 130
    assert err == (
        "nb2ddp: stopped by SIGINT; kept: outputs/checkpoint-20; to go on from it: "
        "nb2ddp run train.py --cpu --quiet --resume\n"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--nprocs", "2"], "Did you mean '--nproc'?"),
        (["--max-restarts=2"], "Options of torchrun follow a --: nb2ddp run TARGET -- --max-restarts."),
        (["extra"], "unexpected extra argument (extra)"),
        (["--monitor", "-q"], "give one of them"),
    ],
)
def test_only_what_follows_two_dashes_goes_to_torchrun(
    tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    process = start(tmp_path, "open('ran', 'w')", *arguments)
    _, err = process.communicate(timeout=LONG)
    assert process.returncode == 2
    assert sentence in err
    assert not (tmp_path / "ran").exists()


LOOP = """\
import time, torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    loss = model(torch.ones(4, 2)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("its loop has ended", flush=True)
time.sleep(999)
"""


@pytest.mark.thorough
def test_a_second_run_of_a_notebook_leaves_the_first_ones_script_alone(tmp_path: Path) -> None:
    """Whether the notebook is the same or not: the second one converts into the folder that the first runs in."""
    path = tmp_path / "a.ipynb"
    command = [sys.executable, "-m", "nb2ddp", "run", "a.ipynb", "--cpu"]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE_PARENT)}
    nbformat.write(notebook(LOOP), path)
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # it is ignored in the background of a shell
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as first:
        assert first.stdout is not None
        assert any("its loop has ended" in line for line in first.stdout)
        script = (tmp_path / "a_ddp" / "train_ddp.py").read_text()
        nbformat.write(notebook(LOOP, "another = 1"), path)
        for options, said in (
            ((), "Another run goes on"),
            (("--log-dir", "logs2"), "a run goes on with the script"),
        ):
            done = subprocess.run(
                [*command, *options], cwd=tmp_path, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 1
            assert said in done.stderr.splitlines()[-1], done.stderr
            assert options or len(done.stderr.splitlines()) == 1, "nothing is converted for nothing"
            assert (tmp_path / "a_ddp" / "train_ddp.py").read_text() == script
        first.send_signal(signal.SIGINT)
        first.stdout.read()
    done = subprocess.run(
        [sys.executable, "-m", "nb2ddp", "convert", "a.ipynb", "-q"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "another = 1" in (tmp_path / "a_ddp" / "train_ddp.py").read_text()
