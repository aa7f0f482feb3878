"""Make the picture of a run: `nb2ddp convert` and the end of `nb2ddp run`, as a terminal shows them.

    python docs/make_pictures.py

Both commands really run, in a terminal of their own and on the CPU (some minutes); what they print goes into
docs/pictures/run.svg, between them alone the training's own output is left out. Needs the training stack.
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
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "pictures" / "run.svg"
SAMPLE = ROOT / "sample_notebooks" / "alpaca_sft.ipynb"
COLUMNS = 100
END = "nb2ddp: the run succeeded"

# Rich's own picture of a terminal, without the fonts that it would load from the network
FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>nb2ddp convert and nb2ddp run in a terminal</title>
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


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(SAMPLE, folder)
        converted = shown("convert", SAMPLE.name, cwd=folder)
        run = shown("run", "alpaca_sft_ddp", "--cpu", "--nproc", "2", cwd=folder)
    start = run.rindex("\n", 0, run.index(END)) + 1
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for command, text in (
        (f"nb2ddp convert {SAMPLE.name}", converted),
        ("nb2ddp run alpaca_sft_ddp --cpu --nproc 2", f"\x1b[2m[...]\x1b[0m\n{run[start:]}"),
    ):
        console.print(f"[bold green]$[/] [bold]{command}[/]", highlight=False)
        console.print(Text.from_ansi("\n".join(line.rstrip() for line in text.splitlines())))
        console.print()
    PICTURE.parent.mkdir(exist_ok=True)
    svg = console.export_svg(title="nb2ddp", code_format=FORMAT, unique_id="run")
    PICTURE.write_text(re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE).strip() + "\n", encoding="utf-8")
    print(f"Wrote {PICTURE}")


if __name__ == "__main__":
    main()
