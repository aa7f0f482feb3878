"""Texts of the notebook in YAML, in Kubernetes' arguments, in commands and in comments."""

from __future__ import annotations

import random
import shlex

import yaml

from nb2ddp.targets import TARGETS
from nb2ddp.targets.job import Job, arguments, yaml_block, yaml_string
from tests.unit.targets.conftest import SCRIPT, files
from tests.unit.targets.test_engines import expanded

ODD = [
    "",
    " ",
    "\n",
    "a: b",
    "- x",
    "# no",
    "'",
    '"',
    "\\",
    "\\n",
    "\t",
    "\x07",
    "\x7f",
    "\x85",
    "\u2028",
    "\ufeff",
]
ODD += ["é", "🦥", "\r\n", "  lead", "trail  ", "%", "{{ x }}", "$(HOME)", "$$", "`x`", "yes", "null", "1e3"]


def odd_texts() -> list[str]:
    rng = random.Random(0)
    mixed = ["".join(rng.choices([*ODD, "a", "\n", " "], k=rng.randint(1, 8))) for _ in range(400)]
    return ODD + mixed


def test_yaml_reads_back_what_was_quoted() -> None:
    for text in odd_texts():
        assert yaml.safe_load(f"a: {yaml_string(text)}\nb: 1\n") == {"a": text, "b": 1}, repr(text)
        document = f"a:\n  - {yaml_block(text, 6)}\n  - b\n"
        assert yaml.safe_load(document) == {"a": [text, "b"]}, repr(text)


def test_code_is_a_block_of_its_own_lines() -> None:
    assert yaml_block("if x:\n    y()\n\nz()\n", 4) == "|\n    if x:\n        y()\n\n    z()"


def test_kubernetes_gives_back_what_was_quoted() -> None:
    for text in odd_texts():
        assert "".join(map(expanded, arguments(text))) == text, repr(text)


def test_a_module_name_is_one_word_for_the_shell() -> None:
    text = files("slurm", module=("gcc/12.2.0+x",))["train.sbatch"]
    (line,) = [line for line in text.splitlines() if line.startswith("module load")]
    assert shlex.split(line) == ["module", "load", "gcc/12.2.0+x"]


def test_the_notebooks_name_cannot_leave_its_comment() -> None:
    what = Job("a\nreboot #.ipynb", SCRIPT, None)
    for target in TARGETS:
        assert not any("\nreboot" in text for text in TARGETS[target]().files(what).values())
