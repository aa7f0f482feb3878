"""What rank 0's output says about a training run: steps, losses, speed. Pure text in, numbers out.

Two things are understood, both as they look in a script's output (not in a notebook's): tqdm's bars, and the
dicts that Transformers' Trainer prints. Loops of their own are followed as far as they print "loss 1.23".
"""

from __future__ import annotations

import ast
import math
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

Record = dict[str, float]
"""One line of the training log: "step" and what the Trainer logged for it."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BAR = re.compile(
    r"""[ \t]*(?:(?P<label>[^\r\n|]*?):[ ]+)?[ ]*\d+%\|[^|]*\|[ ]
    (?P<done>\d+)/(?P<total>\d+)[ ]\[[\d:]+<(?P<left>[\d:?]+),[ ]*(?P<rate>[\d.?]+)(?P<unit>[^,\]]*)
    (?:,[ ](?P<postfix>[^\]]*))?\]""",
    re.VERBOSE,
)
_COUNT = re.compile(
    r"[ \t]*[^\r\n|{]*: \d+ \w+ \[[\d:]+, +[\d.?]+ [^\]]*\]"
)  # a bar whose total is not known
_LOSS = re.compile(
    r"(?<![\w_])(?:train_?)?loss['\"]?[ \t]*[:=]?[ \t]*(?:tensor\()?"
    r"(?P<loss>\d+(?:\.\d+)?(?:e[-+]?\d+)?|nan)",
    re.I,
)
_STEP = re.compile(r"(?<![\w_])(?:step|iter(?:ation)?)[ \t]*[:=]?[ \t]*(?P<step>\d+)", re.I)
_BATCH = re.compile(r"^nb2ddp: batch .* = (?P<total>\d+) per step$")
_TRANSCRIPT_LINES = 4000


@dataclass
class Progress:
    """What is known so far; `feed` it with the output as it comes.

    ``step`` and ``total`` count training steps (of this epoch's bar, in a loop with a bar for each);
    ``seconds_left`` and ``steps_per_second`` are tqdm's own numbers. ``stage`` is what goes on beside the
    training, by the label of its bar.
    """

    step: int = 0
    total: int = 0
    seconds_left: float | None = None
    steps_per_second: float | None = None
    batch: int | None = None
    stage: str = "starting"
    records: list[Record] = field(default_factory=list)
    transcript: deque[str] = field(default_factory=lambda: deque(maxlen=_TRANSCRIPT_LINES))
    _rest: str = ""
    _bar: tuple[str, int] | None = None
    _training_bar: tuple[str, int] | None = None
    _earlier_steps: int = 0
    _had_bar: bool = False

    @property
    def loss(self) -> float | None:
        return next((record["loss"] for record in reversed(self.records) if "loss" in record), None)

    @property
    def steps(self) -> int:
        """Training steps so far, of all epochs; by what was logged where there is no bar."""
        logged = self.records[-1]["step"] if self.records else 0
        return int(max(self._earlier_steps + self.step, logged))

    @property
    def samples_per_second(self) -> float | None:
        """Over all ranks: the Trainer's own final number, before that the effective batch times the speed."""
        for record in reversed(self.records):
            if "train_samples_per_second" in record:
                return record["train_samples_per_second"]
        if self.batch is None or self.steps_per_second is None or self._training_bar is None:
            return None
        return self.batch * self.steps_per_second

    @property
    def fraction(self) -> float:
        return min(1.0, self.step / self.total) if self.total else 0.0

    def curve(self, key: str = "loss") -> list[tuple[float, float]]:
        """(step, value) of a logged number, where it is finite."""
        return [
            (record["step"], record[key])
            for record in self.records
            if key in record and math.isfinite(record[key])
        ]

    def feed(self, text: str) -> str:
        """Take the next piece of output; returns what of it is for people: no bars and no log dicts."""
        *lines, rest = (self._rest + text).split("\n")
        shown = [line for raw in lines for line in self._line(raw)]
        self._rest = self._without_bars(rest)  # a bar is complete before its line is
        return "".join(f"{line}\n" for line in shown)

    def finish(self) -> str:
        """The same for a last line that has no end."""
        return self.feed("\n") if self._rest else ""

    def _line(self, raw: str) -> Iterator[str]:
        text = self._without_bars(raw)
        had_bar, self._had_bar = self._had_bar, False
        if had_bar and not text.strip():
            return
        plain = _ANSI.sub("", text)
        if record := _as_record(plain):
            self._note(record)
            return
        self.transcript.append(plain)
        if match := _BATCH.match(plain):
            self.batch = int(match["total"])
        elif match := _LOSS.search(plain):
            said = _STEP.search(plain)
            step = int(said["step"]) if said else 0
            step = self._earlier_steps + step if step <= self.total or not self.total else step
            self._note({"step": max(step, self.step if not said else 0), "loss": float(match["loss"])})
        yield text

    def _note(self, record: Record) -> None:
        if "loss" in record and self._bar is not None:
            self._training_bar = self._bar
        self.records.append({"step": self._earlier_steps + self.step, **record})

    def _without_bars(self, raw: str) -> str:
        """Read all bars in a line that carriage returns overwrite; returns what stands there last."""
        text = ""
        for text in raw.split("\r"):
            while match := _BAR.match(text):
                self._see(match)
                text = text[match.end() :]
            if match := _COUNT.match(text):
                text = text[match.end() :]
                self._had_bar = True
        return text

    def _see(self, match: re.Match[str]) -> None:
        label, done, total = match["label"] or "", int(match["done"]), int(match["total"])
        bar = (label, total)
        self._had_bar = True
        if label and self._training_bar != bar and not match["postfix"]:
            self.stage = "" if done == total else label
            if self._bar is not None:
                return
        self._bar = bar
        if self._training_bar not in (None, bar):
            return  # an evaluation between the steps, say
        if label == "" or self._training_bar == bar:
            self.stage = ""
        if self._training_bar == bar and done < self.step:  # the next epoch's bar
            self._earlier_steps += self.total
        self.step, self.total = done, total
        self.seconds_left = _seconds(match["left"])
        rate = _number(match["rate"])
        if rate:
            self.steps_per_second = 1 / rate if match["unit"].startswith("s/") else rate


def _as_record(line: str) -> Record | None:
    """The dict that the Trainer printed, as numbers; None when the line is something else.

    Transformers 5 prints its numbers as strings, version 4 as they are (with a bare ``nan``).
    """
    text = line.strip()
    if not (text.startswith("{'") and text.endswith("}")):
        return None
    try:
        values = ast.literal_eval(re.sub(r": (-?)(nan|inf)(?=[,}])", r": '\1\2'", text))
        numbers = {key: float(value) for key, value in values.items() if isinstance(key, str)}
    except (ValueError, SyntaxError, TypeError, AttributeError):
        return None
    return numbers if numbers.keys() & {"loss", "eval_loss", "train_runtime", "epoch"} else None


def _seconds(clock: str) -> float | None:
    """Seconds of tqdm's [[hours:]minutes:]seconds."""
    try:
        return float(sum(int(part) * 60**i for i, part in enumerate(reversed(clock.split(":")))))
    except ValueError:
        return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
