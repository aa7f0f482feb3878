"""Read files of small notebooks that a test asks about, with the answer.

A file looks like one of `tests.support.cases`, without outputs:

    # What is asked of these programs, in a sentence.

    # first cell
    import time

    # case: what is special about this one
    x = f()
    # %%
    g(x)
    # asked: g(
    # answer: True

The lines at the end of a case are questions and answers: what they mean says the test that reads the file. The first
cell is common to all programs of the file, and may be left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.support.cases import CaseFileError, sections, split

_LINE = re.compile(r"# (asked|answer): (.*)")


@dataclass(frozen=True)
class Program:
    """A small notebook: its cells, what is asked of it, and the answers."""

    name: str
    cells: tuple[str, ...]
    asked: str
    answers: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


def programs(test: str, name: str) -> list[Program]:
    """Return the programs of ``programs/NAME.py`` beside a test's file (``__file__``)."""
    path = Path(test).parent / "programs" / f"{name}.py"
    first: tuple[str, ...] = ()
    found: list[Program] = []
    for number, title, lines in sections(path):
        if title == "":
            continue
        told: list[tuple[str, str]] = []
        while lines and (not lines[-1].strip() or (match := _LINE.fullmatch(lines[-1]))):
            told[:0] = [(match[1], match[2])] if lines.pop().strip() and match else []
        cells = tuple("\n".join(cell).strip("\n") + "\n" for cell in split(lines, "# %%"))
        if title == "first cell":
            first = cells
            continue
        answers = tuple(text for kind, text in told if kind == "answer")
        if not answers or title in map(str, found):
            raise CaseFileError(f"{path}:{number}: a case has a name of its own, and a line `# answer: ...`")
        asked = next((text for kind, text in told if kind == "asked"), "")
        found.append(Program(title, (*first, *cells), asked, answers))
    return found
