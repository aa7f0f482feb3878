"""A bash cell runs as one script, to its last newline, which no case file shows."""

from __future__ import annotations

from nb2ddp.rules import rule_of
from tests.support.helpers import check_settles

rule = rule_of("shell_lines")


def test_a_bash_cell_runs_as_one_script() -> None:
    check_settles(
        rule,
        '%%bash\nfor i in {1..3}; do\n  echo "$i" >> log\ndone\n',
        'ddp.shell("""for i in {1..3}; do\n  echo "$i" >> log\ndone\n""")\n',
    )
