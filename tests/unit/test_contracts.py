"""Every rule keeps the same contract: named like its file, documented by a diff that is true, tested."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
from textwrap import dedent

import pytest

import nb2ddp.rules
from nb2ddp.rewriting.findings import Rule
from nb2ddp.rules import RULES
from tests.support import ROOT
from tests.support.helpers import apply

NAMES = {module.name for module in pkgutil.iter_modules(nb2ddp.rules.__path__)}


def test_every_rule_file_is_in_rules() -> None:
    assert {rule.name.replace("-", "_") for rule in RULES} == NAMES


def test_the_page_about_the_rules_is_made_from_them() -> None:
    script = ROOT / "docs" / "make_table.py"
    assert subprocess.run([sys.executable, script, "--check"]).returncode == 0, "`make docs` writes it"


def test_every_rule_has_a_test_file() -> None:
    tests = {path.stem for path in (ROOT / "tests" / "rules").glob("test_*.py")}
    assert {f"test_{name}" for name in NAMES} <= tests


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_documented_diff_is_what_the_rule_does(rule: Rule) -> None:
    block = re.search(r"\.\. code-block:: diff\n\n(.*)", rule.doc, re.DOTALL)
    assert block is not None
    diff = dedent(block.group(1)).rstrip().splitlines()
    if not any(line.startswith(("+", "-")) for line in diff):  # a rule that only tells something
        diff = [f" {line}" for line in diff]
    before = "\n".join(line[1:] for line in diff if line[:1] != "+")
    after = "\n".join(line[1:] for line in diff if line[:1] != "-")
    result = apply(rule, before)
    assert result.code[1].rstrip() == after.rstrip()
    assert all(change.why for change in result.changes)
