"""%run_ddp in a real Jupyter kernel, with runs on two real processes.

The runs do with torch alone: what Unsloth adds is in the sample notebook, which `make test-all` executes here too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from nb2ddp.jupyter.run_process import Training
from nb2ddp.monitor.progress import Progress
from tests.support import ROOT
from tests.support.kernels import Kernel, kernel_in
from tests.support.ranks import WITHOUT
from tests.support.runs import HARNESS

DATA = """\
import os, sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm
torch.manual_seed(0)
x = torch.randn(96, 8)
y = x.sum(1, keepdim=True)
pause = 0.0
"""
MODEL = """\
class TinyModel(torch.nn.Linear):
    @classmethod
    def from_pretrained(cls, name):
        return cls(8, 1)

model = TinyModel.from_pretrained("tiny")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(TensorDataset(x, y), batch_size=8)
"""
LOOP = """\
for step, (a, b) in enumerate(tqdm(loader)):
    loss = torch.nn.functional.mse_loss(model(a), b)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4f}")
    time.sleep(pause)
"""
SAVE = 'torch.save(model.state_dict(), "model.pt")\n'
COLLECT = "%%run_ddp --collect\n"


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    folder = tmp_path / "my notebooks"
    folder.mkdir()
    with kernel_in(folder) as kernel:
        yield kernel


def script(kernel: Kernel, line: str = "%run_ddp --show") -> str:
    """What --show shows, without nb2ddp's own lines at the top."""
    shown = kernel.run(line)
    assert shown.displays, shown.text
    return shown.displays[0]["text/plain"]


def collect(kernel: Kernel) -> None:
    """Put data and model into the script, so that the kernel need not import torch."""
    for name, source in (("data", DATA), ("model", MODEL)):
        assert "goes into the script" in kernel.run(COLLECT + source, name).text


# ---------------------------------------------------------------------------------------------------------
# Which cells make up the script: shown, not run


def test_failed_cells_are_left_out_and_the_latest_run_counts(kernel: Kernel) -> None:
    collect(kernel)
    kernel.run("rate = 'first'", "rate")
    kernel.run("used = rate", "use")
    kernel.run("1 / 0  # failed", "bad")
    kernel.run("this is no Python", "worse")
    kernel.run("rate = 'second'", "rate")
    kernel.run("%env WANDB_PROJECT=demo", "env")
    kernel.run("%load_ext nb2ddp", "load")
    text = script(kernel, f"%%run_ddp --show\n{LOOP}")
    assert "rate = 'first'" not in text
    assert "# failed" not in text
    assert "no Python" not in text
    # it is used in between, so it stays where it was
    assert text.index("rate = 'second'") < text.index("used = rate") < text.index("mse_loss")
    assert 'os.environ["WANDB_PROJECT"] = "demo"' in text
    assert "[6] failed" in text
    assert "[4] ran again as [8]" in text


def test_out_of_order_cells_come_as_they_ran(kernel: Kernel) -> None:
    collect(kernel)
    kernel.run("third = 3", "c")
    kernel.run("print(nothing_of_this_name)", "a")
    kernel.run("nothing_of_this_name = 1", "b")
    kernel.run("print(nothing_of_this_name)", "a")
    text = script(kernel, f"%%run_ddp --show\n{LOOP}")
    parts = ["third = 3", "nothing_of_this_name = 1", "print(nothing_of_this_name)"]
    assert sorted(parts, key=text.index) == parts
    assert text.count("print(nothing_of_this_name)") == 1


def test_cells_that_ran_before_the_extension_was_loaded(tmp_path: Path) -> None:
    with kernel_in(tmp_path, load=False) as kernel:
        kernel.run("before = 'yes'")
        kernel.run("1 / 0  # failed")
        kernel.run("before = 'yes'")
        kernel.run("import nb2ddp")
        kernel.run("%load_ext nb2ddp")
        collect(kernel)
        text = script(kernel, f"%%run_ddp --show\n{LOOP}")
        assert text.count("before = 'yes'") == 1
        assert "# failed" not in text


def test_cells_about_our_own_results_are_left_out(kernel: Kernel) -> None:
    collect(kernel)
    kernel.run("_ddp = 'a result'\nprint(_ddp)", "own")
    kernel.run("result = %run_ddp nowhere.ipynb", "run")
    kernel.run("try:\n    result.plot()\nexcept NameError:\n    pass", "plot")
    text = script(kernel, f"%%run_ddp --show\n{LOOP}")
    assert "result.plot()" not in text
    assert "run_ddp nowhere" not in text
    assert "uses a result of %run_ddp" in text


def test_only_takes_this_cell_alone(kernel: Kernel) -> None:
    kernel.run("in_another_cell = 1", "a")
    text = script(kernel, f"%%run_ddp --only --show --batch scale\n{DATA}{MODEL}{LOOP}")
    assert "in_another_cell" not in text
    assert "mse_loss" in text


def test_a_collected_cell_that_is_run_plainly_later_counts_once(kernel: Kernel) -> None:
    collect(kernel)
    kernel.run(f"{COLLECT}marker = 'collected'", "m")
    kernel.run("marker = 'ran'", "m")
    text = script(kernel, f"%%run_ddp --show\n{LOOP}")
    assert "marker = 'collected'" not in text
    assert "marker = 'ran'" in text


def test_what_was_changed_is_marked(kernel: Kernel) -> None:
    collect(kernel)
    shown = kernel.run(f"%%run_ddp --show\n{LOOP}")
    assert "each rank computes its part of every batch [loops]" in shown.displays[0]["text/plain"]
    new = re.findall(r"background:[^>]*>(?:<span[^>]*>[^<]*</span>)([^<]*)<", shown.html)
    assert any(line.startswith("ddp.parallelize(model)  # nb2ddp:") for line in new)
    assert "    loss.backward()" not in new
    assert not (kernel.folder / "run_ddp").exists()


# ---------------------------------------------------------------------------------------------------------
# Arguments


def test_wrong_arguments_read_as_ipythons_own(kernel: Kernel) -> None:
    for line, sentence in {
        "%run_ddp --nproc 0": "argument --nproc: the number of processes must be 1 or more, not '0'",
        "%run_ddp --nproc two": "argument --nproc: the number of processes must be 1 or more, not 'two'",
        "%run_ddp --batch half": "argument --batch: invalid choice: 'half'",
        "%run_ddp --fast": "unrecognized arguments: --fast",
        "%run_ddp 'half a name": "no closing quotation in: 'half a name",
        "%run_ddp a.ipynb b.ipynb": "unrecognized arguments: b.ipynb",
        "%run_ddp missing.ipynb": "missing.ipynb does not exist.",
        "%run_ddp --only": "--only is for a cell",
        "%run_ddp --collect": "--collect is for a cell",
        "%run_ddp": "no cell has run yet",
        "%%run_ddp a.ipynb\nx = 1": "a notebook is run with %run_ddp a.ipynb",
        "%%run_ddp --only\n\n": "there is nothing in this cell",
        "%%run_ddp --collect --show\nx = 1": "--collect runs nothing yet",
        "%%run_ddp --only\nx = = 1": "this cannot be converted:\nCell In[15], line 2: this is not valid Python",
        "%%run_ddp --only\nx = 1": "nb2ddp sees no training here",
        "%%run_ddp --button\nx = 1": "--button is for a line",
        f"%%run_ddp --only --keep /proc/1/x --cpu\n{DATA}{MODEL}{LOOP}": "Name another folder with --keep",
        f"%%run_ddp --only --keep {__file__} --cpu\n{DATA}{MODEL}{LOOP}": "is a file; name a folder",
        f"%%run_ddp --only --keep {Path(__file__).parent} --cpu\n{DATA}{MODEL}{LOOP}": "holds other files",
    }.items():
        ran = kernel.run(line)
        assert not ran.ok, line
        assert ran.text.startswith("UsageError: "), line
        assert sentence in ran.text, line
        assert "Traceback" not in ran.text + ran.error, line


def test_help_has_examples(kernel: Kernel) -> None:
    # what %%run_ddp? shows as a page
    text = kernel.value("get_ipython().find_cell_magic('run_ddp').__doc__")
    for part in ("%%run_ddp --nproc 2", "%run_ddp finetune.ipynb", "--collect", "--batch"):
        assert part in text
    kernel.run("ran = 0")
    for asked in ("%run_ddp --help", "%run_ddp -h", "%%run_ddp --collect --help\nran = 1"):
        shown = kernel.run(asked)
        assert shown.ok, shown.text
        assert shown.text.startswith("Usage:\n  %run_ddp [--nproc N]")
        assert "\nExamples:\n" in shown.text
        assert "``" not in shown.text
        for option in ("--collect  ", "--batch <", "--cpu  "):
            assert option in shown.text
    assert kernel.value("ran") == "0"
    assert "goes into the script" not in shown.text


def test_loading_twice_and_unloading(kernel: Kernel) -> None:
    kernel.run("%reload_ext nb2ddp")
    kernel.run("x = 1")
    assert "sees no training here" in kernel.run("%run_ddp --cpu").text
    kernel.run("%unload_ext nb2ddp")
    assert "not found" in kernel.run("%run_ddp --cpu").text


def test_free_lets_go_of_what_a_traceback_holds(kernel: Kernel) -> None:
    kernel.run("import weakref\nclass Big:\n    pass")
    kernel.run("def fail():\n    big = Big()\n    global alive\n    alive = weakref.ref(big)\n    1 / 0")
    kernel.run("fail()")
    shown = kernel.run(
        f"%%run_ddp --free --only --keep /proc/1/x\nimport gc; gc.collect()\n{DATA}{MODEL}{LOOP}"
    )
    assert "Freed 0.00 GiB of GPU memory." in shown.text
    kernel.run("import gc; _ = gc.collect()")
    assert kernel.value("alive()") == "None"


# ---------------------------------------------------------------------------------------------------------
# Runs


@pytest.mark.launch
@pytest.mark.thorough
def test_two_runs_in_a_row(kernel: Kernel) -> None:
    collect(kernel)
    first = kernel.run(f"%%run_ddp --cpu --nproc 2\n{LOOP}{SAVE}", "train")
    assert first.ok, first.text
    assert "Trained in" in first.result["text/plain"]
    assert "<svg" in first.result["text/html"]
    assert len({state["text/plain"] for state in first.displays}) > 3, "a display that lives"
    bars = [re.search(r"width:([\d.]+)%", state["text/html"]) for state in first.displays]
    widths = [float(bar[1]) for bar in bars if bar]
    assert widths == sorted(widths)
    assert widths[0] == 0
    assert widths[-1] == 100
    assert 'href="run_ddp/logs/rank1.log"' in first.html
    assert (kernel.folder / "run_ddp" / "logs" / "rank1.log").exists()
    assert kernel.value("_ddp.ok, _ddp.exit_code") == "True 0"
    assert kernel.value("[str(f) for f in _ddp.output_files]") == "['model.pt']"
    assert kernel.value("len(_ddp.log_history), type(_ddp.log_history).__name__") == "12 DataFrame"
    assert "ddp.parallelize(" in kernel.value("_ddp.script")
    assert float(kernel.value("_ddp.seconds")) == pytest.approx(first.seconds, abs=5)
    assert "svg" in kernel.run("_ddp.plot()").result["text/html"]

    second = kernel.run(f"%%run_ddp --cpu --keep kept\n{LOOP}{SAVE}", "train again")
    assert second.ok, second.text
    assert (kernel.folder / "kept" / "train_ddp.py").exists()
    assert second.text.count("step 11: loss") == 1, "the first run's cell is not part of the second"
    kernel.run("losses = list(_ddp.records)")
    assert kernel.others() == []


FAST_BAR = """
import time
from tqdm import tqdm
bar = tqdm(total=20)
for step in range(1, 21):
    time.sleep(0.03)
    bar.update(1)
    if step % 4 == 1:
        bar.write(str({"loss": 1 / step, "epoch": step / 20}))
"""


@pytest.mark.launch
def test_losses_have_their_own_steps_beside_a_bar_that_is_faster_than_tqdm_draws_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(FAST_BAR)
    logs, progress = tmp_path / "logs", Progress()
    training = Training(script, nproc=1, cpu=True, logs=logs, cwd=tmp_path, environment=os.environ)
    while (text := training.read(0.1)) is not None:
        progress.feed(text)
    training.close()
    assert [step for step, _ in progress.curve()] == [1, 5, 9, 13, 17], progress.transcript


BREAKS = {
    0: 'if sys.stdout.name != os.devnull and step == 3:\n        raise ValueError("rank 0 is broken")',
    1: 'if sys.stdout.name == os.devnull and step == 3:\n        raise ValueError("rank 1 is broken")',
}


@pytest.mark.launch
@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.thorough), 1])
def test_a_crash_shows_the_cell_and_line_of_the_first_failing_rank(kernel: Kernel, rank: int) -> None:
    collect(kernel)
    ran = kernel.run(f"%%run_ddp --cpu\n{LOOP}    {BREAKS[rank]}\n", "train")
    assert not ran.ok
    assert re.search(r"Cell In\[4\], line 10, in <module>  \(train_ddp.py:\d+\)", ran.error)
    assert f'raise ValueError("rank {rank} is broken")\nValueError: rank {rank} is broken' in ran.error
    assert f"rank {rank} failed first (exit code 1): ValueError: rank {rank} is broken" in ran.error
    assert "end_on_error" not in ran.error
    assert "Traceback" not in ran.text, "it is shown once"
    assert kernel.value("_ddp.ok, _ddp.exit_code") == "False 1"
    assert "Failed after" in kernel.run("_ddp").result["text/plain"]
    assert "<b>Failed</b>" in ran.html
    assert kernel.others() == []


CHECKPOINTS = """\
import json
from pathlib import Path
pause = 1.0
"""
CHECKPOINT = """\
    if step == 1:
        os.makedirs("outputs/checkpoint-2", exist_ok=True)
        Path("outputs/checkpoint-2/trainer_state.json").write_text(json.dumps({}))
    if step == 2:
        print("in the middle")
"""


@pytest.mark.launch
@pytest.mark.thorough
def test_an_interrupt_ends_all_ranks_and_leaves_the_last_checkpoint(kernel: Kernel) -> None:
    collect(kernel)
    kernel.run(CHECKPOINTS, "checkpoints")
    request = kernel.start(f"%%run_ddp --cpu\n{LOOP}{CHECKPOINT}", "train")
    kernel.end(request, until="in the middle")
    assert len(kernel.others()) >= 4, "the run, torchrun and two ranks"
    kernel.manager.interrupt_kernel()
    ran = kernel.end(request)
    assert ran.seconds < 10
    assert kernel.others() == []
    assert not ran.ok
    assert "KeyboardInterrupt: the training was stopped, and no process of it is left" in ran.error
    assert "the last checkpoint is outputs/checkpoint-2" in ran.error
    assert kernel.value("_ddp.ok, _ddp.exit_code, len(_ddp.records) >= 3") == "False 130 True"
    assert kernel.value("1 + 1") == "2"


@pytest.mark.launch
@pytest.mark.thorough  # as when the launcher is killed: test_launch_end.py
def test_nothing_is_left_when_the_kernel_is_killed(kernel: Kernel) -> None:
    collect(kernel)
    kernel.run("pause = 999.0", "pause")
    kernel.end(kernel.start(f"%%run_ddp --cpu\n{LOOP}", "train"), until="step 0")
    assert kernel.others() != []
    kernel.kill()
    deadline = time.monotonic() + 60
    while kernel.others():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.launch
@pytest.mark.thorough
def test_a_file_runs_without_the_sessions_cells(kernel: Kernel) -> None:
    cells = [
        new_code_cell(source) for source in (DATA, MODEL + "from helper import name", LOOP + "print(name)")
    ]
    nbformat.write(new_notebook(cells=cells), kernel.folder / "my file.ipynb")
    (kernel.folder / "helper.py").write_text("name = 'found beside the notebook'\n")
    kernel.run("raise_in_script = 1 / 1", "session")
    ran = kernel.run("result = %run_ddp 'my file.ipynb' --cpu")
    assert ran.ok, ran.text
    assert "found beside the notebook" in ran.text
    assert kernel.value("result is _ddp, result.ok, 'raise_in_script' in result.script") == "True True False"


@pytest.mark.launch
@pytest.mark.thorough
def test_plain_text_in_a_terminals_ipython(tmp_path: Path) -> None:
    cells = [f"{COLLECT}{DATA}", f"{COLLECT}{MODEL}", f"%%run_ddp --cpu\n{LOOP}{SAVE}"]
    program = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "nb2ddp")
for cell in {cells!r}:
    shell.run_cell(cell, store_history=True).raise_error()
"""
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step 11: loss" in done.stdout
    assert re.search(r"Trained 0:\d\d \[#{20}\]  step 12 of 12", done.stdout)
    assert re.search(r"loss [\d.]+ [▁▂▃▄▅▆▇█]+ [\d.]+", done.stdout)
    assert "<svg" not in done.stdout


@pytest.mark.launch
@pytest.mark.thorough
def test_the_sample_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lean = {"PYTHONPATH": f"{HARNESS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", "OMP_NUM_THREADS": "1"}
    for name, value in {**WITHOUT, **lean}.items():
        monkeypatch.setenv(name, value)
    nb = nbformat.read(ROOT / "sample_notebooks" / "run_ddp_magic.ipynb", as_version=4)
    NotebookClient(nb, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    text = "\n".join(str(cell.get("outputs", "")) for cell in nb.cells)
    assert "Trained in" in text
    assert "no process of it is left" not in text
    assert (tmp_path / "lora" / "adapter_config.json").exists()
