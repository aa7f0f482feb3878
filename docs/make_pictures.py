"""Make the pictures of the documentation: what terminals and JupyterLab show of commands that really run.

    python docs/make_pictures.py [run] [terminal] [jupyterlab]

run: `nb2ddp convert` and the end of `nb2ddp run`, with the real Unsloth. terminal: a user's first steps with the
wheel, typed into tmux at 80 columns, in an environment without this checkout. jupyterlab: `%%run_ddp` in JupyterLab,
in a headless Chromium. All on the CPU, some minutes each; needs `make .venv/.ready`, tmux and Chromium.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from tests.support.browser import CHROMIUM  # noqa: E402
from tests.support.installed import SITE, Installed, built  # noqa: E402
from tests.support.jupyterlab import lab_with, open_notebook, run_all_cells  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
SAMPLE = ROOT / "sample_notebooks" / "alpaca_sft.ipynb"
LOOP = ROOT / "sample_notebooks" / "peft_loop.ipynb"
COLUMNS = 100
END = "nb2ddp: the run succeeded"

# Rich's own picture of a terminal, without the fonts that it would load from the network
FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>TITLE</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def shown(*arguments: str, cwd: Path) -> str:
    """Run nb2ddp in a terminal, and return what it shows.

    Raises:
        RuntimeError: it fails.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    hidden = ("NO_COLOR", "COLUMNS", "NB2DDP")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    bin_folder = str(Path(sys.executable).parent)
    process = subprocess.Popen(
        [sys.executable, "-m", "nb2ddp", *arguments],
        cwd=cwd,
        env={
            **environment,
            "TERM": "xterm-256color",
            "PYTHONPATH": str(ROOT),
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
        },
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    data = b""
    with contextlib.suppress(OSError):  # the terminal is closed
        while piece := os.read(ours, 65536):
            data += piece
    text = data.decode(errors="replace").replace("\r\n", "\n")
    if process.wait():
        raise RuntimeError(text)
    return text


def saved(name: str, title: str, shows: Sequence[tuple[str, str]], columns: int) -> None:
    """Write commands and what they showed, with its colours, as a picture of a terminal."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    for command, text in shows:
        console.print(f"[bold green]$[/] [bold]{command}[/]", highlight=False)
        console.print(Text.from_ansi("\n".join(line.rstrip() for line in text.splitlines())))
        console.print()
    PICTURES.mkdir(exist_ok=True)
    form = FORMAT.replace("TITLE", title)
    svg = console.export_svg(title="nb2ddp", code_format=form, unique_id=Path(name).stem)
    (PICTURES / name).write_text(
        re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE).strip() + "\n", encoding="utf-8"
    )
    print(f"Wrote {PICTURES / name}")


def run() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(SAMPLE, folder)
        converted = shown("convert", SAMPLE.name, cwd=folder)
        ran = shown("run", "alpaca_sft_ddp", "--cpu", "--nproc", "2", cwd=folder)
    shows = (
        (f"nb2ddp convert {SAMPLE.name}", converted),
        ("nb2ddp run alpaca_sft_ddp --cpu --nproc 2", end_of_run(ran)),
    )
    saved("run.svg", "nb2ddp convert and nb2ddp run in a terminal", shows, COLUMNS)


def end_of_run(text: str) -> str:
    """Return what a run shows at its end, without the training's own output."""
    start = text.rindex("\n", 0, text.index(END)) + 1
    return f"\x1b[2m[...]\x1b[0m\n{text[start:]}"


# ---- the first steps with the wheel, at 80 columns -----------------------------------------------


def terminal() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "work"
        folder.mkdir()
        wheel = shutil.copy(built("wheel", Path(name) / "dist"), folder)
        shutil.copy(LOOP, folder)
        stem = LOOP.stem
        commands = (
            f"nb2ddp convert {LOOP.name}",
            f"nb2ddp rehearse {stem}_ddp",
            f"nb2ddp run {stem}_ddp --cpu",
        )
        with typed_into_tmux(stack_without_nb2ddp(Path(name) / "venv"), folder) as show:
            show(f"pip install -q {Path(wheel).name}")  # which a reader does not have
            shows = [(command, show(command)) for command in commands]
    shows[-1] = (commands[-1], end_of_run(shows[-1][1]))
    saved("terminal-80.svg", "First steps with nb2ddp in a terminal of 80 columns", shows, 80)


def stack_without_nb2ddp(folder: Path) -> Installed:
    """Make an environment that has all packages of this one but nb2ddp."""
    venv.create(folder, symlinks=True)
    made = Installed(folder)
    for path in SITE.iterdir():
        if "nb2ddp" not in path.name:
            (made.site / path.name).symlink_to(path)
    (folder / "bin" / "pip").write_text(f'#!/bin/sh\nexec {made.python} -m pip "$@"\n')
    (folder / "bin" / "pip").chmod(0o755)
    return made


@contextlib.contextmanager
def typed_into_tmux(installed: Installed, folder: Path) -> Iterator[Callable[[str], str]]:
    """Open a terminal of 80 columns with a shell; give what types a command and returns what it shows."""
    tmux = ["tmux", "-L", f"nb2ddp-{os.getpid()}", "-f", "/dev/null"]
    hidden = ("NO_COLOR", "COLUMNS", "NB2DDP", "TMUX")
    environment = {
        **{name: value for name, value in installed.environment().items() if not name.startswith(hidden)},
        "HOME": str(folder),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_NO_WARN_SCRIPT_LOCATION": "1",
    }

    def of_tmux(*arguments: str) -> str:
        done = subprocess.run(
            [*tmux, *arguments], env=environment, cwd=folder, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout

    def show(command: str) -> str:
        of_tmux("send-keys", "-l", f"clear; tmux -L nb2ddp-{os.getpid()} clear-history; {command}")
        of_tmux("send-keys", "Enter")
        deadline = time.monotonic() + 900
        while True:
            time.sleep(1)
            lines = of_tmux("capture-pane", "-p", "-e", "-S", "-").rstrip("\n").splitlines()
            if len(lines) > 0 and lines[-1].strip() == "$":
                return "\n".join(lines[:-1])
            if time.monotonic() > deadline:
                raise RuntimeError("\n".join(lines))

    shell = "env PS1='$ ' bash --norc --noprofile"
    of_tmux(
        "new-session", "-d", "-x", "80", "-y", "40", shell, ";", "set-option", "-g", "history-limit", "5000"
    )
    try:
        yield show
    finally:
        of_tmux("kill-server")


# ---- the magic in JupyterLab ----------------------------------------------------------------------

CELLS = (
    "%load_ext nb2ddp",
    """\
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(960, 32)
y = x.sum(1, keepdim=True) + torch.randn(960, 1)
loader = DataLoader(TensorDataset(x, y), batch_size=16)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)""",
    """\
%%run_ddp --nproc 2 --cpu
from tqdm import tqdm
for step, (a, b) in enumerate(tqdm(loader)):
    loss = torch.nn.functional.mse_loss(model(a), b)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 9:
        print(f"step {step + 1}: loss {loss.item():.4f}")
torch.save(model.state_dict(), "model.pt")""",
)


def jupyterlab() -> None:
    from playwright.sync_api import sync_playwright

    picture = PICTURES / "jupyterlab.png"
    with (
        tempfile.TemporaryDirectory() as name,
        lab_with(Path(name), CELLS, PYTHONPATH=str(ROOT)) as address,
        sync_playwright() as browsers,
    ):
        browser = browsers.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 1120})
        page.set_default_timeout(300_000)
        open_notebook(page, address)
        page.keyboard.press("Control+b")  # the list of files, which takes a third of the page
        run_all_cells(page)
        page.wait_for_selector(".nb2ddp-result")
        page.wait_for_timeout(1000)
        page.screenshot(path=str(picture))
        browser.close()
    print(f"Wrote {picture}")


def main() -> None:
    makers = {"run": run, "terminal": terminal, "jupyterlab": jupyterlab}
    wanted = sys.argv[1:] or list(makers)
    if unknown := [name for name in wanted if name not in makers]:
        raise SystemExit(f"There is no picture {unknown[0]}; there are {', '.join(makers)}.")
    for name in wanted:
        makers[name]()


if __name__ == "__main__":
    main()
