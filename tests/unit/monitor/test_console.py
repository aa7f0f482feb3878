"""Lines that a program writes over."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from nb2ddp.monitor.console import Lines

Start = Callable[..., "subprocess.Popen[bytes]"]


def test_lines_that_are_written_over() -> None:
    lines = Lines()
    lines.write("one\ntwo")
    assert lines.take() == []  # not until the cursor has stayed below
    lines.write("\r 10%|#  |\r 20%|## |")
    assert lines.take() == ["one"]
    assert lines.unfinished == [" 20%|## |"]
    lines.write("\n")
    lines.write("\r eval: 50%")
    assert lines.take() == []  # here a second bar is drawn below the first
    lines.write("\x1b[A")
    assert lines.take() == []
    assert lines.unfinished == [" 20%|## |", " eval: 50%"]
    lines.write("\n\r eval: 99%\x1b[A\r 30%|###|")
    assert lines.unfinished == [" 30%|###|", " eval: 99%"]
    lines.write("\r\x1b[Kthree\r\n\r\n")
    lines.take()
    assert lines.take() == ["three", " eval: 99%"]
    lines.write("four")
    assert lines.take(everything=True) == ["four"]
