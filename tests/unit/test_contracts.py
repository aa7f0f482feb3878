"""What is ours is tested and documented: a rule, command, option, target or error without either fails here.

A rule is named like its file, and its documented diff is true. That it has cases is tested in
tests/rules/test_cases.py.
"""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import click
import pytest

import nb2ddp.analysis
import nb2ddp.rules
from nb2ddp import errors
from nb2ddp.cli import main
from nb2ddp.cli.rules import page_of
from nb2ddp.jupyter.arguments import ARGUMENTS
from nb2ddp.options import Options, settings, settings_of
from nb2ddp.rewriting.findings import Rule
from nb2ddp.rules import RULES
from nb2ddp.targets import TARGETS
from tests.support import ROOT
from tests.support.helpers import apply

NAMES = {module.name for module in pkgutil.iter_modules(nb2ddp.rules.__path__)}


def test_every_rule_file_is_in_rules() -> None:
    assert {rule.name.replace("-", "_") for rule in RULES} == NAMES


def test_a_module_of_analysis_has_a_test_file_of_its_name() -> None:
    modules = {module.name for module in pkgutil.iter_modules(nb2ddp.analysis.__path__)} - {"facts"}
    files = (ROOT / "tests" / "unit" / "analysis").glob("test_*.py")
    assert not modules - {path.stem.removeprefix("test_") for path in files}


def test_the_pages_made_from_the_code_are_up_to_date() -> None:
    script = ROOT / "docs" / "make_table.py"
    assert subprocess.run([sys.executable, script, "--check"]).returncode == 0, "`make docs` writes it"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_documented_diff_is_what_the_rule_does(rule: Rule) -> None:
    block = re.search(r"\.\. code-block:: diff\n\n(.*)", rule.doc, re.DOTALL)
    assert block is not None
    diff = dedent(block.group(1)).rstrip().splitlines()
    if not any(line.startswith(("+", "-")) for line in diff):  # a rule that only tells something
        diff = [f" {line}" for line in diff]
    before = "\n".join(line[1:] for line in diff if line[:1] != "+")
    after = "\n".join(line[1:] for line in diff if line[:1] != "-")
    (strategy,) = re.findall(r"# --strategy (\w+)", diff[0]) or ["ddp"]
    result = apply(rule, before, options=Options(strategy=strategy))
    assert result.code[1].rstrip() == after.rstrip()
    assert all(change.why for change in result.changes)


# ---- commands, options, targets, errors -----------------------------------------------------------

DOCS = ROOT / "docs"
TEST_FILES = [
    path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "tests").rglob("*.py"))
    if path.name != Path(__file__).name
]
TESTS = "\n".join(TEST_FILES)
ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.Nb2ddpError) and kind is not errors.Nb2ddpError
]


NAMES_OF_ERRORS = {kind.__name__ for kind in ERRORS} | {
    "Exception",
    "Nb2ddpError",
    "SyntaxError",
    "ValueError",
}


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_documented(rule: Rule) -> None:
    assert f"| `{rule.name}` | {page_of(rule.doc).summary} |" in page("handled.md")
    assert len(page_of(rule.doc).summary) > 20


@pytest.mark.parametrize("name", main.commands)
def test_a_command_is_tested_and_documented(name: str) -> None:
    assert f"## `nb2ddp {name}`" in page("commands.md")
    called = rf"""[(\[,=]\s*"{name}","""
    assert re.search(called, TESTS), f"no test calls `nb2ddp {name}`"


SETTINGS = {setting.name for setting in settings()}  # test_options.py tries each of them
OPTIONS = [
    pytest.param(command, option, id=f"{command}{option.opts[-1]}")
    for command in main.commands
    for option in main.commands[command].params
    if isinstance(option, click.Option)
]


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_an_option_is_tested_and_documented(command: str, option: click.Option) -> None:
    section = page("commands.md").partition(f"## `nb2ddp {command}`")[2].partition("\n## ")[0]
    if command == "convert" and option.name in SETTINGS:
        section = page("commands.md").partition("## Options of a conversion")[2].partition("\n## ")[0]
    assert re.search(rf"^\| `[^`]*{option.opts[-1]}[ ,`]", section, re.MULTILINE)
    used = "|".join(re.escape(flag) for flag in [*option.opts, *option.secondary_opts])
    # the options of an emit target are tried as arguments of its class
    tried = rf"""["' ]({used})["'= \n]""" + (rf"|\b{option.name}=" if command == "emit" else "")
    called = rf"""["' ]{command}["' ]""" + (r"|nb2ddp\.targets" if command == "emit" else "")
    with_command = "\n".join(text for text in TEST_FILES if re.search(called, text))
    assert option.name in SETTINGS or re.search(tried, with_command), f"no test uses {option.opts[-1]}"


MAGIC_FLAGS = [flag for argument in ARGUMENTS for flag in argument.args if flag.startswith("--")]


@pytest.mark.parametrize("flag", MAGIC_FLAGS)
def test_an_option_of_the_magic_is_tested_and_documented(flag: str) -> None:
    known = {setting.flag for setting in settings()}
    heading = "## Options of a conversion" if flag in known else "## `%run_ddp` and `%%run_ddp`"
    section = page("commands.md").partition(heading)[2].partition("\n## ")[0]
    assert re.search(rf"^\| `[^`]*{flag}[ `]", section, re.MULTILINE)
    with_magic = "\n".join(text for text in TEST_FILES if "run_ddp" in text)
    assert flag in known or re.search(rf"{flag}\b", with_magic), f"no test uses {flag}"


@pytest.mark.parametrize("name", TARGETS)
def test_an_emit_target_is_tested_and_documented(name: str) -> None:
    (choice,) = (p.type for p in main.commands["emit"].params if p.name == "target")
    assert isinstance(choice, click.Choice)
    assert list(choice.choices) == list(TARGETS)
    assert f"`{name}`" in page("commands.md")
    tests = "".join(path.read_text() for path in (ROOT / "tests" / "unit" / "targets").glob("*.py"))
    assert f'"{name}"' in tests


def test_each_option_of_a_target_is_one_of_emit() -> None:
    names = [parameter.name for parameter in main.commands["emit"].params]
    assert len(names) == len(set(names)), "a target's option has the name of one that all targets have"
    assert {option.name for kind in TARGETS.values() for option in settings_of(kind)} <= set(names)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_is_tested_and_documented(kind: type[errors.Nb2ddpError]) -> None:
    assert f"| {kind.exit_code} | `{kind.__name__}` |" in page("exit_codes.md")
    assert re.search(rf"\b{kind.__name__}\b", TESTS), f"no test names {kind.__name__}"


def test_every_error_stands_in_errors() -> None:
    """Those of the magic are shown by IPython; others are caught where they are raised."""
    elsewhere = set()
    for path in sorted((ROOT / "nb2ddp").rglob("*.py")):
        for name, base in re.findall(
            r"^class (\w+)\((\w+)\):", path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            if base in NAMES_OF_ERRORS and path.name != "errors.py":
                elsewhere.add(name)
    assert elsewhere == {"CaughtRequest", "RunFailedError", "Unavailable", "UnreadError", "_Enough"}
    for name in ("RunFailedError", "RunInterruptedError"):
        assert f"`{name}`" in page("exit_codes.md")


def test_the_errors_of_kaggle_have_codes_of_their_own() -> None:
    own = [kind.exit_code for kind in ERRORS if issubclass(kind, errors.KaggleError)]
    assert all(own.count(code) == 1 for code in own if code > 10)
