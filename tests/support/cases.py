"""Read and check case files: a notebook's code, a line ``# output``, and the code that it becomes.

``tests/rules/cases/RULE/*.py`` holds the cases of one rule, which is applied alone. The cases of the folder
``whole_script`` go through the whole conversion; what is compared is the code of the cells, below the head.

A file shows one behaviour, in as many cases as that takes:

    # What the cases of this file show, in a sentence.

    # first cell
    from trl import SFTTrainer

    # case: what is special about this one
    # flags: --batch scale
    x = 1
    # %%
    y = 1
    # output
    x = 2
    # %%
    y = 1
    # note, cell 2, line 1: the beginning of a sentence ... and its end

    # last cell
    SFTTrainer(model).train()

The first and the last cell are common to all cases of the file; both may be left out, and nothing may change
in them. ``# %%`` begins the next cell. ``# flags`` are those of ``nb2ddp convert``. A case without an output
must stay as it is. Then come the messages, all of them: notes, declines, and ``# head: ...`` for what the head of the
script gets; ``...`` stands for any text. Where there is a decline there is no script, and so no output.

The expected output is written by hand; nothing here writes it.
"""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from textwrap import indent

from nb2ddp.options import Options, argparse_options, given
from nb2ddp.rewriting.findings import Change, Need
from nb2ddp.rules import RULES
from nb2ddp.source import ipython_syntax
from nb2ddp.source.cells import Place
from tests.support.helpers import apply, converted

CASES = Path(__file__).parents[1] / "rules" / "cases"
WHOLE_SCRIPT = "whole_script"

_SECTION = re.compile(r"# (?:(?P<frame>(?:first|last) cell)|case: (?P<case>.+))")
_MESSAGE = re.compile(r"# (?:note|decline|head)\b[^:]*: .")


class CaseFileError(Exception):
    """A case file does not follow the format; the text begins with the file and the line."""


@dataclass(frozen=True)
class Case:
    """One case: its code before and after the conversion, cell by cell, and the messages that it gets."""

    path: Path
    line: int
    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    messages: tuple[str, ...]
    options: Options
    first: str = ""
    last: str = ""

    @property
    def rule(self) -> str:
        """Return the name of the rule's module, or `WHOLE_SCRIPT`."""
        return self.path.parent.name

    @property
    def changes_code(self) -> bool:
        return self.before != self.after

    @property
    def stays(self) -> bool:
        """Return whether nothing is changed, noted or declined."""
        return not self.changes_code and not self.messages

    def __str__(self) -> str:
        return f"{self.rule}/{self.path.stem}: {self.name}"

    @property
    def _cells(self) -> list[str]:
        return [cell for cell in (self.first, *self.before, self.last) if cell]

    def convert(self, **options: object) -> Result:
        """Convert the notebook of this case; ``options`` go before its own."""
        chosen = replace(self.options, **options)  # type: ignore[arg-type]
        if self.rule == WHOLE_SCRIPT:
            made = converted(*self._cells, options=chosen)
            lines: dict[int, list[str]] = {number: [] for number in range(1, len(self._cells) + 1)}
            for line in made.script.lines if made.script is not None else ():
                if line.cell:
                    lines[line.cell].append(line.text)
            code, declined, notes = ["\n".join(lines[n]) for n in sorted(lines)], made.declined, made.notes
            needs: frozenset[Need] = frozenset()
        else:
            (rule,) = (rule for rule in RULES if rule.name.replace("-", "_") == self.rule)
            result = apply(rule, *self._cells, options=chosen)
            assert all(change.why and change.place for change in result.changes)
            code = [result.code[number] for number in sorted(result.code)]
            declined, notes, needs = result.declined, result.notes, result.needs
        messages = [self._message("decline", change) for change in declined]
        messages += [self._message("note", change) for change in notes]
        messages += [
            f"# head: {need.value if need.kind == 'from __future__' else f'{need.kind}={need.value}'}"
            for need in needs
        ]
        return Result(tuple(code), tuple(messages), bool(declined))

    def _message(self, kind: str, change: Change) -> str:
        return f"# {kind}{self._words(change.place)}: {change.why}"

    def _words(self, place: Place | None) -> str:
        if place is None:
            return ""
        cell = place.cell - bool(self.first)
        if not 1 <= cell <= len(self.before):
            return f", {'first' if cell < 1 else 'last'} cell, line {place.line}"
        return f", cell {cell}, line {place.line}" if len(self.before) > 1 else f", line {place.line}"

    def difference(self) -> str:
        """Return a diff from the expected to the converted code and messages; empty if they are equal."""
        made = self.convert()
        frame = [cell for cell in (self.first,) if cell]
        expected = [*frame, *self.after, *([self.last] if self.last else [])]
        if made.is_declined:
            code = expected = []
        else:
            code = [_plain(cell) for cell in made.code]
            for cell in code:
                compile(cell, str(self), "exec")
        messages = _with_gaps(made.messages, self.messages)
        lines = difflib.unified_diff(
            [*_text([_plain(cell) for cell in expected]), *self.messages],
            [*_text(code), *messages],
            "expected",
            "converted",
            lineterm="",
            n=99,
        )
        text = "\n".join(lines)
        return f"{self.path}:{self.line}: {self.name}\n{indent(text, '  ')}" if text else ""


@dataclass(frozen=True)
class Result:
    """What the conversion of a case gives: the code of each cell, the first and the last one included."""

    code: tuple[str, ...]
    messages: tuple[str, ...]
    is_declined: bool


def _plain(cell: str) -> str:
    """Return a cell as Python, as every cell is before the rules see it, without empty lines at its ends."""
    return ipython_syntax.to_python(cell).text.strip("\n")


def _text(cells: Sequence[str]) -> list[str]:
    return "\n# %%\n".join(cells).splitlines()


def _with_gaps(messages: Sequence[str], expected: Sequence[str]) -> list[str]:
    """Return the messages, those that match an expected text with gaps as that text."""
    open_texts, found = list(expected), []
    for message in messages:
        match = next((text for text in open_texts if _matches(text, message)), message)
        if match in open_texts:
            open_texts.remove(match)
        found.append(match)
    return found


def _matches(text: str, message: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, text.split("..."))), message, re.DOTALL) is not None


# ---- reading ----------------------------------------------------------------------------------------


@cache
def all_cases() -> tuple[Case, ...]:
    """Return the cases of all files."""
    return tuple(case for path in sorted(CASES.glob("*/*.py")) for case in read_cases(path))


def cases_of(rule: str, file: str | None = None) -> list[Case]:
    """Return the cases of a rule's module, or of one of its files."""
    return [case for case in all_cases() if case.rule == rule and file in (None, case.path.stem)]


def read_cases(path: Path) -> list[Case]:
    """Read one case file.

    Raises CaseFileError for a file that does not follow the format.
    """
    if path.parent.name not in {WHOLE_SCRIPT, *(rule.name.replace("-", "_") for rule in RULES)}:
        raise CaseFileError(f"{path}:1: the folder {path.parent.name} is not named like the module of a rule")
    frame: dict[str, str] = {}
    cases: list[Case] = []
    for number, title, lines in sections(path):
        place = f"{path}:{number}"
        if title in ("", "first cell", "last cell"):
            frame[title] = "\n".join(lines).strip("\n")
            continue
        if any(case.name == title for case in cases):
            raise CaseFileError(f"{place}: a case above has the same name")
        cases.append(_case(path, number, title, lines))
    if not frame.get("", "").startswith("# "):
        raise CaseFileError(f"{path}:1: say in a comment at the top what the cases of this file show")
    if not cases:
        raise CaseFileError(f"{path}:1: there is no line that begins with `# case: `")
    first, last = frame.get("first cell", ""), frame.get("last cell", "")
    return [replace(case, first=first, last=last) for case in cases]


def sections(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the line, the title and the lines of each section; the title above the first one is empty."""
    number, title, lines = 1, "", list[str]()
    for at, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if match := _SECTION.fullmatch(line):
            yield number, title, lines
            number, title, lines = at, match["case"] or match["frame"], []
        else:
            lines.append(line)
    yield number, title, lines


def _case(path: Path, number: int, name: str, lines: list[str]) -> Case:
    place = f"{path}:{number}"
    options = Options()
    if lines and lines[0].startswith("# flags: "):
        options = _options(place, lines.pop(0).removeprefix("# flags: "))
    while lines and not lines[-1].strip():
        lines.pop()
    messages: list[str] = []
    while lines and _MESSAGE.match(lines[-1]):
        messages.insert(0, lines.pop())
    halves = split(lines, "# output")
    if len(halves) > 2:
        raise CaseFileError(f"{place}: a case has one line `# output`, this one has more")
    before = split(halves[0], "# %%")
    after = split(halves[1], "# %%") if len(halves) == 2 else before
    cells, expected = (tuple("\n".join(cell).strip("\n") for cell in half) for half in (before, after))
    if not any(cells):
        raise CaseFileError(f"{place}: there is no code in this case")
    if len(halves) == 2 and cells == expected:
        raise CaseFileError(f"{place}: the output is the same code; leave it out")
    if len(cells) != len(expected):
        raise CaseFileError(f"{place}: {len(cells)} cells become {len(expected)}; each has to be there")
    return Case(path, number, name, cells, expected, tuple(messages), options)


def split(lines: list[str], separator: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for line in lines:
        if line == separator:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def _options(place: str, flags: str) -> Options:
    parser = argparse.ArgumentParser(exit_on_error=False, add_help=False, allow_abbrev=False)
    for names, rest in argparse_options():
        parser.add_argument(*names, **rest)
    values, unknown = parser.parse_known_args(shlex.split(flags))
    if unknown:
        raise CaseFileError(f"{place}: nb2ddp convert does not know {' '.join(unknown)}")
    return given(vars(values))
