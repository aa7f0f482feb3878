"""A file that a cell writes is the cell byte for byte, to its last newline, which no case file shows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nb2ddp.jupyter import history
from nb2ddp.rules import magics, rule_of
from tests.support.helpers import apply, check_settles

rule = rule_of("magics")

FILES = {
    "written": (
        '%%writefile train.py\nprint("a\\n")\n',
        'ddp.write_file("train.py", """print("a\\\\n")\n""")\n',
    ),
    "appended": ("%%writefile -a log.txt\none\n", 'ddp.write_file("log.txt", """one\n""", "a")\n'),
    "by its other name, quoted": ('%%file "my file.txt"\nx', 'ddp.write_file("my file.txt", """x\n""")\n'),
    "with triple quotes inside": (
        '%%writefile a.py\n"""Doc."""\nx\n',
        'ddp.write_file("a.py", \'\'\'"""Doc."""\nx\n\'\'\')\n',
    ),
}


@pytest.mark.parametrize(("before", "after"), FILES.values(), ids=FILES.keys())
def test_a_file_is_written_whole_and_once(before: str, after: str) -> None:
    check_settles(rule, before, after)


def test_the_written_file_is_the_cell_byte_for_byte() -> None:
    body = 'import os\n\n\tx = "a\\tb" + \'\'\'c\'\'\' + """d"""\nprint(f"{x}")  # ünï \\\n\n'
    written: list[str] = []
    script = apply(rule, f"%%writefile a.py\n{body}").code[1]
    ddp = SimpleNamespace(write_file=lambda path, text: written.append(text))
    exec(script, {"ddp": ddp})
    assert written == [body]


def test_the_name_of_a_result_is_that_of_the_magic() -> None:
    assert magics._RESULT == history.RESULT_NAME
