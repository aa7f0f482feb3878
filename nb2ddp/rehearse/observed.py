"""What the harness noted in a run, read back: one `Rank` for each process."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from nb2ddp.launch.failure import log_tail
from nb2ddp.rehearse.runs import Run

Note = dict[str, Any]

_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$')
_CACHES = ("unsloth_compiled_cache", "__pycache__", "logs", "wandb", ".cache")


@dataclass(frozen=True)
class Step:
    """One optimizer step of one rank.

    ``loss`` is the sum of what backward() was called on, ``micro_batches`` times. ``indices`` and ``rows`` are the
    places in the data set and digests of the numbers of the samples that this rank computed, each None when they
    cannot be told; ``count`` is how many. ``digest`` is that of the trained parameters. ``gradients`` are
    digest and norm of what the optimizer took, None where that is not known. ``counts`` is how many tokens a mean may
    count, by what they are. ``line`` and ``backward`` are lines of the script: of the step, and of the last
    backward().
    """

    loss: float
    indices: tuple[int, ...] | None
    rows: tuple[str, ...] | None
    count: int | None
    digest: str
    micro_batches: int
    gradients: tuple[str, float] | None
    counts: Mapping[str, int]
    line: int | None
    backward: int | None


@dataclass(frozen=True)
class Rank:
    """One process of a run."""

    number: int
    notes: Sequence[Note]
    code: int | None
    ended: float
    printed: int
    errors: str
    stack: str
    parameters: Path
    folder: Path = field(repr=False)

    def of(self, *kinds: str) -> list[Note]:
        return [note for note in self.notes if note["kind"] in kinds]

    @cached_property
    def steps(self) -> list[Step]:
        given = {(note["iterator"], note["number"]): note for note in self.of("batch")}
        return [_step(note, given) for note in self.of("step")]

    @cached_property
    def epochs(self) -> list[tuple[int, list[int]]]:
        """Number of each iterator over training data, and the indices that were trained of what it gave, in order.

        Empty where the indices of a step are not known.
        """
        found: dict[int, list[int]] = {}
        for note, step in zip(self.of("step"), self.steps, strict=True):
            if step.indices is None:
                return []
            found.setdefault(note["batches"][0][0], []).extend(step.indices)
        return list(found.items())

    def wrote_at(self, name: str) -> int | None:
        """Return the line of the script that wrote a file of the working folder."""
        path = str(self.folder / name)
        return next((note.get("line") for note in self.of("write") if note["path"] == path), None)

    def line(self, *kinds: str) -> int | None:
        """Return the line of the script that the first of these notes has."""
        return next((note["line"] for note in self.of(*kinds) if note.get("line")), None)

    @property
    def losses(self) -> list[float]:
        return [step.loss for step in self.steps]

    @property
    def first_digest(self) -> str | None:
        return next((note["digest"] for note in self.of("begin")), None)

    @cached_property
    def loaders(self) -> list[Note]:
        """The notes of the data loaders' iterators that it trained on."""
        used = {iterator for note in self.of("step") for iterator, _ in note["batches"]}
        return [note for note in self.of("loader") if note["iterator"] in used]

    def passes_before(self, number: int) -> list[int | None]:
        """Return the lines at which it began to go through a data loader before a step."""
        done = itertools.takewhile(
            lambda note: (note["kind"], note.get("number")) != ("step", number), self.notes
        )
        return [note.get("passed") for note in done if note["kind"] == "loader"]

    @cached_property
    def written(self) -> list[str]:
        """Files below the working folder that it opened for writing, caches and locks left out."""
        # the runtime module writes in a folder of its own, and renames what is whole, which is noted too
        found = dict.fromkeys(Path(note["path"]) for note in self.of("write"))
        below = [path.relative_to(self.folder) for path in found if path.is_relative_to(self.folder)]
        passing = (".unfinished-", *_CACHES)
        return [
            str(path)
            for path in below
            if path.suffix != ".lock" and not any(part.startswith(passing) for part in path.parts)
        ]

    @property
    def collectives(self) -> list[tuple[str, int | None]]:
        return [(note["name"], note["line"]) for note in self.of("enter")]

    @property
    def pending(self) -> tuple[str, int | None] | None:
        """The collective that it entered and never left."""
        entered = self.of("enter", "leave")
        if not entered or entered[-1]["kind"] == "leave":
            return None
        return entered[-1]["name"], entered[-1]["line"]

    def numbers(self) -> array[float] | None:
        """Return the trained parameters after the last step; None where they are too many."""
        return _floats(self.parameters)

    def first_gradients(self) -> array[float] | None:
        """Return the gradients that its first step took."""
        return _floats(self.parameters.with_name(f"gradients-{self.number}.f32"))


def _floats(path: Path) -> array[float] | None:
    values = array("f")
    with contextlib.suppress(OSError):
        values.frombytes(path.read_bytes())
        return values
    return None


def _step(note: Note, given: Mapping[tuple[int, int], Note]) -> Step:
    """Read a step back: its samples are those of its batches, or of these the rows that the model was called with.

    Where a script changes rows on their way to the model, only their number is known.
    """
    batches = [given.get((iterator, number)) for iterator, number in note["batches"]]
    indices, rows = _joined(batches, "indices"), _joined(batches, "rows")
    known = indices if indices is not None else rows
    count = None if known is None else len(known)
    counts = _counts(batches)
    widths = [batch["width"] for batch in batches if batch is not None]
    computed = note["computed"]
    is_known = len(widths) == len(batches) and None not in widths
    if computed and is_known and len(computed) < (width := sum(widths)):
        places = _places(computed, rows) if rows is not None and len(rows) == width else None
        count = None if computed == [None] else len(computed)
        indices, rows = _at(indices, places), _at(rows, places)
        counts = {name: _at(values, places) or () for name, values in counts.items() if len(values) == width}
    return Step(
        sum(note["losses"]),
        indices,
        rows,
        count,
        note["digest"],
        len(note["losses"]),
        tuple(note["gradients"]) if note.get("gradients") else None,
        {name: sum(values) for name, values in counts.items()},
        note.get("line"),
        note.get("backward"),
    )


def _places(computed: Sequence[str | None], rows: Sequence[str]) -> list[int] | None:
    """Return where among the rows those are that a rank computed; None where one is not among them."""
    places: list[int] = []
    for digest in computed:
        place = next((i for i, row in enumerate(rows) if row == digest and i not in places), None)
        if place is None:
            return None
        places.append(place)
    return places


def _at(values: Sequence[Any] | None, places: Sequence[int] | None) -> tuple[Any, ...] | None:
    return None if values is None or places is None else tuple(values[place] for place in places)


def _counts(batches: Sequence[Note | None]) -> dict[str, Sequence[int]]:
    """Return how many tokens each row of the batches has, by what they are."""
    counts: dict[str, Sequence[int]] = {}
    for batch in batches:
        for name, values in ((batch or {}).get("counts") or {}).items():
            counts[name] = [*counts.get(name, ()), *values]
    return counts


def _joined(batches: Sequence[Note | None], key: str) -> tuple[Any, ...] | None:
    parts: list[Any] = [None if batch is None else batch[key] for batch in batches]
    return tuple(itertools.chain.from_iterable(parts)) if parts and None not in parts else None


def observe(run: Run) -> list[Rank]:
    """Return what was noted of each rank of a run that has ended."""
    return [_rank(run, number) for number in run.ranks]


def _rank(run: Run, number: int) -> Rank:
    ending: Note = next(iter(_notes(run.notes / f"exit-{number}.json")), {})
    # of each thread, innermost call first, the main one last
    stack = _text(run.notes / f"stack-{number}.txt").strip()
    return Rank(
        number,
        _notes(run.notes / f"notes-{number}.jsonl"),
        ending.get("code"),
        ending.get("time", 0.0),
        len(_text(run.notes / f"rank{number}.out").splitlines()),
        log_tail(run.notes / f"rank{number}.err"),
        stack.rpartition("\n\n")[2].strip(),
        run.notes / f"parameters-{number}.f32",
        run.folder,
    )


def _notes(path: Path) -> list[Note]:
    notes = []
    for line in _text(path).splitlines():
        with contextlib.suppress(ValueError):  # the last line of a rank that was killed
            notes.append(json.loads(line))
    return notes


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def failing_line(errors: str, script: str) -> int | None:
    """Return the innermost line of the script in the last traceback that a rank printed."""
    found = re.findall(rf'File "[^"]*/{re.escape(script)}", line (\d+)', errors)
    return int(found[-1]) if found else None


def frames(stack: str, script: str) -> list[tuple[str, int]]:
    """Return the calls of the script in a stack: function and line."""
    found = [_FRAME.match(line) for line in stack.splitlines()]
    return [(m["function"], int(m["line"])) for m in found if m and Path(m["file"]).name == script]
