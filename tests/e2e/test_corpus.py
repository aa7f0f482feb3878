"""Every notebook of the corpus converts, or is declined with a sentence; none fails.

`make test` takes every sixth of them, `make test-all` takes all: after a change of rules,
`pytest tests/e2e/test_corpus.py -m ""` takes four minutes or so.

The corpus is no part of the project: without the folder beside the repository this module is skipped.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyflakes.checker import Checker  # type: ignore[import-untyped]
from pyflakes.messages import UndefinedName  # type: ignore[import-untyped]

from nb2ddp.conversion.pipeline import Conversion, convert
from nb2ddp.ddp_folder import SCRIPT
from nb2ddp.source import ipython_syntax
from tests.support import CORPUS, ROOT

NOTEBOOKS = sorted(CORPUS.rglob("*.ipynb"))

pytestmark = pytest.mark.skipif(not NOTEBOOKS, reason="no corpus beside the repository")

_INSTALL = re.compile(
    r"^\s*(?:sudo\s+|-m\s+|uv\s+)*(?:pip3?|conda|apt|apt-get)\s+(?:-\S+\s+)*(?:un)?install\b"
)
_RUNNERS = frozenset(
    "shell shell_output system popen run call check_call check_output Popen getoutput".split()
)
_DIGESTS = """
import json, sys, hashlib
from nb2ddp.conversion.pipeline import convert
for path in json.load(sys.stdin):
    files = sorted(convert(path).files.items())
    print(hashlib.sha256(repr(files).encode()).hexdigest())
"""


@dataclass(frozen=True)
class Outcome:
    """What became of one notebook, and what is wrong with it: empty where nothing is."""

    path: Path
    status: str
    digest: str
    problems: tuple[str, ...]


def outcome(path: Path) -> Outcome:
    try:
        conversion = convert(path)
    except Exception:
        return Outcome(path, "crashed", "", (traceback.format_exc(),))
    problems = [*_problems_of_text(conversion), *_problems_of_report(conversion)]
    return Outcome(path, conversion.status, _digest(conversion), tuple(problems))


def _digest(conversion: Conversion) -> str:
    return hashlib.sha256(repr(sorted(conversion.files.items())).encode()).hexdigest()


def _problems_of_text(conversion: Conversion) -> Iterator[str]:
    if conversion.status != "converted":
        if conversion.files:
            yield f"{conversion.status}, and yet there are files"
        return
    for name, text in conversion.files.items():
        if name.endswith(".py"):
            try:
                _parsed(text)
            except SyntaxError as error:
                yield f"{name} is no Python: {error}"
                return
    script = conversion.files[SCRIPT]
    if "get_ipython" in script:
        yield "get_ipython is left in the script"
    for command in _commands(_parsed(script)):
        if _INSTALL.search(command):
            yield f"the script installs something: {command}"
    assert conversion.source is not None
    own = [ipython_syntax.to_python(c.source).text for c in conversion.source.cells if c.kind == "code"]
    try:
        excused = _undefined("\n".join(own))
    except SyntaxError:  # IPython lets a cell await, a module may not
        excused = frozenset()
    if names := _undefined(script) - excused:
        yield f"the script does not define {', '.join(sorted(names))}"


@functools.lru_cache(maxsize=8)  # the runtime module is a file of every folder
def _parsed(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # the notebooks' own escapes
        warnings.simplefilter("ignore", DeprecationWarning)  # the same, before Python 3.12
        compile(text, SCRIPT, "exec", dont_inherit=True)
        return ast.parse(text)


def _undefined(text: str) -> frozenset[str]:
    found = Checker(_parsed(text)).messages
    return frozenset(m.message_args[0] for m in found if isinstance(m, UndefinedName))


def _commands(tree: ast.Module) -> Iterator[str]:
    """The texts that the script gives to a shell."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            for node in call.args if name in _RUNNERS else ():
                parts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
                yield " ".join(part for part in parts if isinstance(part, str))


def _problems_of_report(conversion: Conversion) -> Iterator[str]:
    said = [*conversion.changes, *conversion.notes, *conversion.declined]
    if conversion.status == "declined" and not conversion.declined:
        yield "declined without a reason"
    if conversion.status == "converted" and not conversion.changes:
        yield "converted without a change"
    assert conversion.source is not None
    lines = {c.number: c.source.count("\n") + 1 for c in conversion.source.cells if c.kind == "code"}
    in_script = conversion.files.get(SCRIPT, "").count("\n")
    for change in said:
        if not change.rule or not change.why:
            yield f"a change does not say why: {change}"
        if change.place is None:
            continue
        if not 1 <= change.place.line <= lines.get(change.place.cell, 0):
            yield f"no such place: {change}"
        line = conversion.script.line(change.place) if conversion.script is not None else None
        if line is not None and not 1 <= line <= in_script:
            yield f"no such line of the script: {line}, {change}"
    for change in (*conversion.notes, *conversion.declined):
        words = change.why.split()
        if len(words) < 5 or words != change.why.split(" ") or change.why.endswith((".", ":", ";", ",")):
            yield f"not a sentence: {change.why!r}"


@dataclass(frozen=True)
class Part:
    """Every ``step``-th notebook of the corpus, and how many of these may be declined."""

    step: int
    declined: int


PARTS = [
    pytest.param(Part(6, 3), id="every sixth"),
    # the whole corpus, twice: longer than the limit of a test on a busy machine
    pytest.param(Part(1, 12), id="all", marks=[pytest.mark.thorough, pytest.mark.timeout(3600)]),
]


@pytest.fixture(scope="module", params=PARTS)
def part(request: pytest.FixtureRequest) -> Part:
    asked: Part = request.param
    return asked


@pytest.fixture(scope="module")
def outcomes(part: Part) -> Sequence[Outcome]:
    context = multiprocessing.get_context("fork")  # the workers need no import of this module
    with ProcessPoolExecutor(2, mp_context=context) as workers:
        return list(workers.map(outcome, NOTEBOOKS[:: part.step], chunksize=8))


def _report(outcomes: Sequence[Outcome], wrong: Callable[[Outcome], object]) -> str:
    found = [o for o in outcomes if wrong(o)]
    return "\n".join(f"{o.path.relative_to(CORPUS)}: {o.status} {' / '.join(o.problems)}" for o in found)


def test_every_notebook_is_converted_or_declined(outcomes: Sequence[Outcome], part: Part) -> None:
    assert not _report(outcomes, lambda o: o.status not in ("converted", "declined"))
    assert len(outcomes) == len(NOTEBOOKS[:: part.step])


def test_scripts_are_whole_and_reports_are_true(outcomes: Sequence[Outcome]) -> None:
    assert not _report(outcomes, lambda o: o.problems)


def test_few_notebooks_are_declined(outcomes: Sequence[Outcome], part: Part) -> None:
    declined = [o for o in outcomes if o.status == "declined"]
    assert len(declined) <= part.declined, _report(outcomes, lambda o: o.status == "declined")


def test_a_second_conversion_gives_the_same_bytes(outcomes: Sequence[Outcome]) -> None:
    """In another process, with another order of sets."""
    again = outcomes[::6]
    second = subprocess.run(
        [sys.executable, "-c", _DIGESTS],
        input=json.dumps([str(o.path) for o in again]),
        env={**os.environ, "PYTHONHASHSEED": "20261121", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    digests = dict(zip((o.path for o in again), second.stdout.split(), strict=True))
    assert not _report(again, lambda o: digests[o.path] != o.digest)
