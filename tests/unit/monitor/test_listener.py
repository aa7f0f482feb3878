"""What the listener prints of its own, beside what rank 0 prints."""

from __future__ import annotations

import pytest

from nb2ddp.monitor.listener import Listener


@pytest.mark.parametrize(("last", "added"), [("\r 50%|#####     | 5/10", "\n"), ("done\n", ""), (None, "")])
def test_what_is_said_after_a_bar_has_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str], last: str | None, added: str
) -> None:
    listener = Listener()
    if last is not None:
        listener._hear(last, False)
    listener.end(lambda: False)
    assert capsys.readouterr().err == added
