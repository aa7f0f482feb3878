"""Whatever is given as a notebook: a conversion, or a sentence with cell and line; never a traceback."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner, Result

from nb2ddp.cli import main
from nb2ddp.conversion.pipeline import Conversion
from nb2ddp.conversion.report import lines
from nb2ddp.errors import NotebookError
from nb2ddp.source.notebook import read_notebook
from tests.support.helpers import converted, notebook

TRAINING = (
    "from unsloth import FastLanguageModel\nfrom trl import SFTConfig, SFTTrainer",
    'model, tokenizer = FastLanguageModel.from_pretrained("unsloth/llama")',
    "args = SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4)",
    "trainer = SFTTrainer(model=model, args=args)\ntrainer.train()",
)


def convert_with(cell: str) -> Conversion:
    """Convert a training notebook with ``cell`` as its third cell, in less than ten seconds of CPU time."""
    start = time.process_time()
    result = converted(*TRAINING[:2], f"md:{cell[3:]}" if cell.startswith("md:") else cell, *TRAINING[2:])
    assert time.process_time() - start < 10
    said = "\n".join(lines(result))
    assert "please report" not in said
    return result


# ---- the user's own mistakes ----------------------------------------------------------------------------

MISTAKES = [
    ("!ls\nif True:\n        x = 1\n    y = 2\n", 4, "unindent"),
    ("if True:\n        x = 1\n    y = 2\n", 3, "unindent"),
    ("x = 1\nx = = 2", 2, "invalid syntax"),
    ("!ls\nx = (1,", 2, "never closed"),
    ("!ls\nx = '''abc", 2, "unterminated"),
    ("x = 1\nasync with a() as b:\n    pass", 2, r"asyncio\.run"),
    ("if 1:\n    async for a in b():\n        pass", 2, r"asyncio\.run"),
    ("x = [i async for i in a()]", 1, r"asyncio\.run"),
    ("!ls\nawait f()", 2, r"asyncio\.run"),
    ("from __future__ import nothing", 1, "future feature nothing is not defined"),
    ("x = 1\nglobal tokenizer", 2, "delete it"),
    ("x = 1\nglobal x", 2, "assigned to before global"),
    ("x = 1\nreturn x", 2, "outside function"),
    ("class A:\n    return 1", 2, "outside function"),
    ("break", 1, "outside loop"),
    ("def f(a, a): pass", 1, "duplicate argument"),
    ("f(a=1,\n  a=2)", 2, "repeated"),
    ("x = '\0'", 1, "null bytes"),
    ("\ufeffx = 1", 1, "U\\+FEFF"),
    ("x\u00a0= 1", 1, "U\\+00A0"),
    ("nonlocal x", 1, "nonlocal"),
    ("def f():\n    from x import *", 2, "only allowed at module level"),
    ("x = 1\n!ls\n" * 600, 1002, "more than 500 magics"),
    ("x = " + "(" * 5000 + ")" * 5000, 1, "nested"),
    ("x = " + "-" * 50_000 + "1", 1, "nested"),
    ("%%capture\n" * 2000 + "x = 1", 1, "nested"),
]


@pytest.mark.parametrize(("cell", "line", "why"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_named_with_its_cell_and_line(cell: str, line: int, why: str) -> None:
    result = convert_with(cell)
    assert result.status == "declined"
    (change,) = result.declined
    assert change.place is not None
    assert (change.place.cell, change.place.line) == (3, line)
    import re

    assert re.search(why, change.why)


@pytest.mark.parametrize(
    "cell",
    [
        "md:hello \0 world",
        "md:form\x0cfeed\x1cand\x85others\u2028too",
        "x = 1\n\x0cy = 2",
        "x = '\ud800'",
        "!ls\n" * 200,
        "    !ls\n    x = 1",
        "# -*- coding: utf-16 -*-\nx = 1",
        "x = " + "(" * 150 + "1" + ")" * 150,
        "if x == 0:\n    pass\n" + "".join(f"elif x == {i}:\n    pass\n" for i in range(200)),
        "%%capture",
        "!ls \\",
        "x = !ls {a",
        "",
        "# comments\n\n# alone",
    ],
    ids=range(14),
)
def test_what_jupyter_takes_is_taken(cell: str) -> None:
    assert convert_with(cell).status == "converted"


@pytest.mark.parametrize(
    "cell", ["x = a" + ".b" * 900, "x = " + "not " * 900 + "1", "x = (" + "'a' " * 3000 + ")"], ids="abc"
)
def test_what_is_nested_too_deeply_is_declined(cell: str) -> None:
    result = convert_with(cell)
    assert "nested too deeply" in result.declined[0].why


def test_more_code_than_can_be_read_is_declined_at_once() -> None:
    result = convert_with("x = [" + "1, " * 500_000 + "]")
    assert "move data that is written out in it to a file" in result.declined[0].why


# ---- Python that is newer than the running one ------------------------------------------------------------

NEWER = [
    ('print(f"{d["a"]}")', (3, 12)),
    ("print(f\"{'\\n'.join([])}\" 'b')", (3, 12)),
    ("x = f'{f'{1}'}'", (3, 12)),
    ("type X = int", (3, 12)),
    ("def f[T](a: T) -> T:\n    return a", (3, 12)),
    ("class A[T]:\n    pass", (3, 12)),
    ("try:\n    pass\nexcept A, B:\n    pass", (3, 14)),
    ("x = t'{1}'", (3, 14)),
    ("try:\n    pass\nexcept* A, B:\n    pass", (3, 14)),
    ("def f[T = int](a: T) -> T:\n    return a", (3, 13)),
    ("type X[*Ts = *tuple[int]] = int", (3, 13)),
    ("x = [*a for a in b]", (3, 15)),
    ("x = f(*a for a in b)", (3, 15)),
    ("x = {**a for a in b}", (3, 15)),
]


@pytest.mark.parametrize(("cell", "version"), NEWER, ids=[cell[:12] for cell, _ in NEWER])
def test_newer_syntax_is_converted_with_a_note(cell: str, version: tuple[int, int]) -> None:
    result = convert_with(cell)
    assert result.status == "converted", lines(result)
    assert cell in result.files["train_ddp.py"]
    noted = [note for note in result.notes if "syntax of Python" in note.why]
    if sys.version_info[:2] >= version:
        assert not noted
    else:
        (note,) = noted
        assert note.place is not None
        assert note.place.cell == 3
        assert "Python {}.{}:".format(*version) in note.why


@pytest.mark.parametrize(
    "cell",
    [
        'return f"{d["a"]}"',
        'f(a=1, a=2, b=f"{d["a"]}")',
        "f'{a['b']}' f'{'",
        "None = f'{a['b']}'",
        "f'{a['b']!z}'",
    ],
)
def test_newer_syntax_beside_a_mistake_is_declined(cell: str) -> None:
    result = convert_with(cell)
    assert result.declined[0].place is not None
    assert "not valid Python" in result.declined[0].why


UNREAD = [
    ("x = t'{a}' t'{b}'", 1),
    ("!ls\ndef f():\n    y = 1\n    return t'{a}' t'b'", 4),
    ("try:\n    x = t'{a}' t'b'\nexcept E:\n    pass", 2),
    ("x = 1\nx = f(t'{a}'\n      t'b')", 2),
    ("'b' t'{a}'", 1),
    ("x = 1\nf'{a}' t'{b}' 'c'", 2),
    ("x = 1\nlazy import torch", 2),
    ("if x:\n    pass\nlazy from torch import nn", 3),
    ("x = 1\nx = tr'{a!r:{b}}'", 2),
    ("t'{a}' 'b'", 1),
]


@pytest.mark.parametrize(("cell", "line"), UNREAD, ids=range(len(UNREAD)))
def test_newer_syntax_that_is_not_read_is_named_with_its_line(cell: str, line: int) -> None:
    result = convert_with(cell)
    (change,) = result.declined
    assert change.place is not None
    assert (change.place.cell, change.place.line) == (3, line)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python reads it")
@pytest.mark.parametrize(
    "deep",
    [
        "lambda: " * 4000,
        pytest.param("(" * 3000, marks=pytest.mark.thorough),
        pytest.param("a" + ".b" * 33_000 + " + ", marks=pytest.mark.thorough),
        pytest.param("-" * 50_000, marks=pytest.mark.thorough),
    ],
)
def test_newer_syntax_above_something_deep_does_not_end_the_process(deep: str) -> None:
    code = f'd = {{}}\nx = f"{{d["a"]}}"\ny = {deep}1{")" * deep.count("(")}\n'
    program = (
        "import sys; from tests.support.helpers import converted; print(converted(sys.stdin.read()).status)"
    )
    done = subprocess.run([sys.executable, "-c", program], input=code, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "declined\n"), done.stderr


# ---- files that are no notebooks ------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "INTERNAL ERROR" not in result.output
    return result


def test_a_pipe_is_not_waited_for(here: Path) -> None:
    os.mkfifo("x.ipynb")
    result = run("convert", "x.ipynb")
    assert result.exit_code == 1
    assert "x.ipynb cannot be read: it is a pipe, a device or a socket, and not a file." in result.output


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/urandom"])
def test_a_device_is_not_read(here: Path, device: str) -> None:
    Path("x.ipynb").symlink_to(device)
    assert "not a file" in run("convert", "x.ipynb").output


def test_an_endless_link(here: Path) -> None:
    Path("x.ipynb").symlink_to("x.ipynb")
    assert "x.ipynb cannot be read: Too many levels of symbolic links" in run("convert", "x.ipynb").output


def test_a_folder_named_like_a_notebook(here: Path) -> None:
    Path("x.ipynb").mkdir()
    assert "there are no notebooks in x.ipynb" in run("convert", "x.ipynb").output
    with pytest.raises(NotebookError, match="is a folder"):
        read_notebook(Path("x.ipynb"))


def test_a_name_that_is_too_long(here: Path) -> None:
    for command in (["convert"], ["run"], ["emit", "--target", "slurm"]):
        expected = "File name too long" if command == ["convert"] else "does not exist"
        assert expected in run(*command, f"{'x' * 300}.ipynb").output
    nbformat.write(notebook(*TRAINING), "x.ipynb")
    assert "cannot be written: File name too long" in run("convert", "x.ipynb", "-o", "y" * 300).output


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(here: Path) -> None:
    Path("closed").mkdir(mode=0)
    assert "cannot be read: Permission denied" in run("convert", "closed/x.ipynb").output


def test_a_folder_that_cannot_be_written(here: Path) -> None:
    nbformat.write(notebook(*TRAINING), "x.ipynb")
    assert "/proc/x cannot be written" in run("convert", "x.ipynb", "-o", "/proc/x").output


CONTENTS = {
    "nothing": b"",
    "NUL": b"\0" * 100,
    "noise": bytes(range(256)),
    "latin-1": '{"cells": ["é"]}'.encode("latin-1"),
    "a list": b"[]",
    "a number": b"1",
    "nested": b"[" * 100_000,
    "many lists": b"[" + b"[]," * 1_000_000 + b"[]]",
    "no cells": b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}}',
    "cells of text": b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": "abc"}',
    "cells of cells": b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [[[]]]}',
    "source of lists": b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, '
    b'"cells": [{"cell_type": "code", "metadata": {}, "source": [["x"]], "outputs": []}]}',
    "no metadata": b'{"nbformat": 4, "nbformat_minor": 5, "cells": []}',
    "metadata of text": b'{"nbformat": 4, "nbformat_minor": 5, "metadata": "x", "cells": []}',
    "from the future": b'{"nbformat": 99, "nbformat_minor": 5, "metadata": {}, "cells": []}',
    "infinity": b'{"nbformat": Infinity, "metadata": {}, "cells": []}',
    "a large number": b'{"nbformat": ' + b"9" * 5000 + b"}",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_what_is_no_notebook_is_named(here: Path, name: str) -> None:
    Path("x.ipynb").write_bytes(CONTENTS[name])
    result = run("convert", "x.ipynb")
    assert result.exit_code == 1
    assert "x.ipynb" in result.output
    assert not Path("x_ddp").exists()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-le"])
def test_other_encodings_of_json_are_read(here: Path, encoding: str) -> None:
    text = nbformat.writes(notebook(*TRAINING, "# é 中文 🙂"))
    Path("x.ipynb").write_bytes(text.encode(encoding))
    assert run("convert", "x.ipynb").exit_code == 0
    assert "# é 中文 🙂" in Path("x_ddp/train_ddp.py").read_text(encoding="utf-8")


def test_a_huge_file_is_refused_unread(here: Path) -> None:
    with open("x.ipynb", "wb") as file:
        file.truncate(5_000_000_000)  # a hole: no disk
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "x.ipynb is larger than 100 MB" in run("convert", "x.ipynb").output
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_a_report_that_is_nested_deeply_is_not_ours(here: Path) -> None:
    nbformat.write(notebook(*TRAINING), "x.ipynb")
    Path("x_ddp").mkdir()
    Path("x_ddp/report.json").write_text("[" * 100_000)
    assert "report.json was not written by nb2ddp" in run("convert", "x.ipynb").output


# ---- terminals that take nothing ------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["convert", "--json", "x.ipynb"], ["rules"]])
def test_a_full_disk_behind_stdout(here: Path, arguments: list[str]) -> None:
    nbformat.write(notebook(*TRAINING), "x.ipynb")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "nb2ddp", *arguments], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr
    assert done.returncode


def test_a_terminal_in_another_encoding(here: Path) -> None:
    name = "中文 é.ipynb"
    nbformat.write(notebook(*TRAINING, "# 🙂"), name)
    for flags in ([], ["--json", "--force"], ["--diff", "--force"]):
        done = subprocess.run(
            [sys.executable, "-m", "nb2ddp", "convert", *flags, name],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        )
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
        if "--json" in flags:
            assert json.loads(done.stdout.decode("latin-1"))["status"] == "converted"
