"""Lines that a program writes over."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from nb2ddp.monitor.console import Interruption, Lines

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


TRACE = b'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    train()\n'


def test_the_traceback_of_ctrl_c_is_left_out() -> None:
    interruption = Interruption()
    parts = [b"saving\n 10%|#  |" + TRACE[:40], TRACE[40:], b"Keyboard", b"Interrupt\nsaved\nby", b"e"]
    assert b"".join(map(interruption.passed, parts)) == b"saving\n 10%|#  |saved\n"
    assert interruption.passed(everything=True) == b"bye"


def test_other_tracebacks_are_shown_after_ctrl_c() -> None:
    interruption = Interruption()
    text = TRACE + b"OSError: no space left\nby itself\n"
    assert interruption.passed(text) == text
    assert interruption.passed(TRACE) == b""
    assert interruption.passed(everything=True) == TRACE  # the process was killed while it printed


def test_an_interrupt_while_another_error_was_handled_has_no_traceback() -> None:
    interruption = Interruption()
    first = TRACE + b"RuntimeError: Connection closed by peer\n\n"
    chain = b"During handling of the above exception, another exception occurred:\n\n"
    assert interruption.passed(first + chain + TRACE + b"\nKeyboardInterrupt\nsaved\n") == b"saved\n"
    text = first + chain + TRACE + b"OSError: x\nsaved\n"
    assert interruption.passed(text) == text
