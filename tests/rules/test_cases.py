"""The rules do what their case files say, and every rule has cases."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Rule
from nb2ddp.rules import RULES
from tests.support import cases
from tests.support.cases import WHOLE_SCRIPT, Case, CaseFileError, all_cases, cases_of, read_cases


def only_tells(rule: Rule) -> bool:
    """Return whether the diff in a rule's docstring has no changed line: it notes or declines."""
    return re.search(r"^    [-+]", rule.doc, re.MULTILINE) is None


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_a_case_becomes_its_output(case: Case) -> None:
    if difference := case.difference():
        pytest.fail(difference, pytrace=False)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_has_a_case_that_it_changes_and_one_that_it_leaves_alone(rule: Rule) -> None:
    own = cases_of(rule.name.replace("-", "_"))
    folder = f"tests/rules/cases/{rule.name.replace('-', '_')}"
    changes = any(case.changes_code for case in own)
    if only_tells(rule):
        assert any(case.messages for case in own), f"add a case with `# note, line N: ...` to {folder}"
        assert not changes, f"show in the docstring of {rule.name}, by lines with - and +, what it changes"
    else:
        assert changes, f"add a case with `# output` to {folder}, or take - and + out of the docstring's diff"
    # finish leaves none alone: a notebook either trains, or is declined
    alone = any(not case.changes_code if rule.name == "finish" else case.stays for case in own)
    assert alone, f"add a case that {rule.name} leaves alone, without `# output`, to {folder}"


# Rules whose output has nothing for them to find any more.
SETTLING = [
    "cell_output",
    "clocks",
    "device_map",
    "dialects",
    "installs",
    "magics",
    "precision",
    "run_names",
    "seeds",
    "shell_lines",
    "surroundings",
]


@pytest.mark.parametrize("rule", SETTLING)
def test_a_second_pass_changes_nothing(rule: str) -> None:
    changed = [case for case in cases_of(rule) if case.changes_code and case.name != "set by a magic"]
    assert changed
    assert not [
        text for case in changed if (text := replace(case, before=case.after, messages=()).difference())
    ]


# ---- the format ---------------------------------------------------------------------------------


LITERAL = """\
# A device.

# first cell
import torch

# case: by number
x.to(0)
# %%
y = 1
# output
x.to(local_rank)
# %%
y = 1

# case: by name
x.to("cuda")
"""


def written(folder: Path, text: str, rule: str = "device_literals") -> Path:
    path = folder / rule / "example.py"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read_case_by_case(tmp_path: Path) -> None:
    number, name = read_cases(written(tmp_path, LITERAL))
    assert str(number) == "device_literals/example: by number"
    assert number.line == 6
    assert (number.first, number.before) == ("import torch", ("x.to(0)", "y = 1"))
    assert number.after == ("x.to(local_rank)", "y = 1")
    assert not number.stays
    assert name.stays
    assert not number.difference()
    assert not name.difference()


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (("x.to(local_rank)", "x.to(rank)"), "-x.to(rank)"),
        (("y = 1\n\n", "y = 2\n\n"), "-y = 2"),
        (('x.to("cuda")', "x.cuda(0)"), "+x.cuda(local_rank)"),
        (('("cuda")', '(["cuda:1", "cuda:2"])'), '+# note, line 1: "cuda:1" is one'),
        (
            ('"cuda")', '"cuda")\n# note, line 1: this is said nowhere'),
            "-# note, line 1: this is said nowhere",
        ),
    ],
    ids=["output", "other cell", "left alone", "a note more", "a note less"],
)
def test_a_case_that_does_not_hold_is_shown_as_a_diff(
    tmp_path: Path, wrong: tuple[str, str], line: str
) -> None:
    path = written(tmp_path, LITERAL.replace(*wrong, 1))
    (difference,) = (text for case in read_cases(path) if (text := case.difference()))
    assert difference.startswith(f"{path}:")
    assert any(shown.strip().startswith(line) for shown in difference.splitlines())


def test_a_note_may_have_gaps_and_must_be_all_there(tmp_path: Path) -> None:
    code = 'x.cuda("cuda:1")\ny.cuda("cuda:2")\n'
    notes = '# note, line 1: "cuda:1" ... rank...\n# note, line 2: "cuda:2" ...\n'
    text = f"# Other GPUs.\n\n# case: by number\n{code}{notes}"
    assert not read_cases(written(tmp_path / "a", text))[0].difference()
    assert read_cases(written(tmp_path / "b", text.replace("rank...", "rank ... twice")))[0].difference()


def test_flags_are_those_of_the_command_line(tmp_path: Path) -> None:
    text = LITERAL.replace("# case: by name", "# case: by name\n# flags: --batch scale --gpu-memory 40")
    number, name = read_cases(written(tmp_path, text))
    assert number.options == Options()
    assert name.options == Options(batch="scale", gpu_memory=40.0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("# case: by name", "# case: by number"), ":15: a case above has the same name"),
        (
            ("x.to(local_rank)\n# %%\ny = 1", "x.to(0)\n# %%\ny = 1"),
            ":6: the output is the same code; leave it out",
        ),
        (("# output", "# output\n# output"), ":6: a case has one line `# output`, this one has more"),
        (("# %%\ny = 1\n\n", "\n\n"), ":6: 2 cells become 1; each has to be there"),
        (('x.to("cuda")\n', "\n"), ":15: there is no code in this case"),
        (("# A device.\n", "\n"), ":1: say in a comment at the top what the cases of this file show"),
        (('x.to("cuda")', '# flags: --fast\nx.to("cuda")'), ":15: nb2ddp convert does not know --fast"),
    ],
)
def test_a_file_of_another_form_is_refused_at_its_line(
    tmp_path: Path, change: tuple[str, str], says: str
) -> None:
    path = written(tmp_path, LITERAL.replace(*change, 1))
    with pytest.raises(CaseFileError) as error:
        read_cases(path)
    assert str(error.value) == f"{path}{says}"


def test_a_file_without_cases_or_without_a_rule_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaseFileError, match="no line that begins with `# case: `"):
        read_cases(written(tmp_path, "# A device.\nx = 1\n"))
    with pytest.raises(CaseFileError, match="the folder devices is not named like the module of a rule"):
        read_cases(written(tmp_path, LITERAL, rule="devices"))


def test_every_case_file_is_read() -> None:
    files = {path for path in cases.CASES.rglob("*") if path.is_file()}
    assert files == {case.path for case in all_cases()}
    assert cases_of(WHOLE_SCRIPT)
