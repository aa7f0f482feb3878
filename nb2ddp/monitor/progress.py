"""Read stage, steps, losses and speed from rank 0's output. Pure text in, numbers out.

Two things are understood, both as they look in a script's output (not in a notebook's): tqdm's bars, and the
dicts that Transformers' Trainer prints. Hand-written loops are followed as far as they print "loss 1.23".

Most bars of a run are not the training's: files are fetched, weights loaded, rows tokenised. A bar counts as
the training's when a loss is logged beside it or in it, when its label says so, or when it has no label and a
Trainer has announced itself. Until then it gives the stage alone.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

Record = dict[str, float]
"""One line of the training log: "step" and what the Trainer logged for it."""

_Key = tuple[str, int]
"""A bar's label without its numbers ("Epoch 1", "Epoch 2", ...), and its total."""


@dataclass
class _Bar:
    key: _Key
    done: int
    left: float | None
    rate: float | None

    @property
    def ended(self) -> bool:
        return self.done >= self.key[1]


_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BAR = re.compile(
    r"""[ \t]*+(?:(?P<label>[^\r\n|]*?):[ ]++)?[ ]*+\d+%\|[^|]*\|[ ]
    (?P<done>\d+)/(?P<total>\d+)[ ]\[[\d:]+<(?P<left>[\d:?]+),[ ]*(?P<rate>\d+(?:\.\d*)?|\?)(?P<unit>[^,\]]*)
    (?:,[ ](?P<postfix>[^\]]*))?\]""",
    re.VERBOSE,
)
_COUNT = re.compile(r"[^\r\n|{]*: \d+ \w+ \[[\d:]+, +[\d.?]+ [^\]]*\]")  # a bar whose total is not known
_LOSS = re.compile(
    r"(?<![\w_])(?:train_?)?loss['\"]?[ \t]*+[:=]?[ \t]*+(?:tensor\()?"
    r"(?P<loss>\d+\.\d+(?:e[-+]?\d+)?|\d+e[-+]?\d+|nan|\d++(?!\.\d|[ \t:/=,]+[\d.]))",  # "loss 2 1.5": 2 is a step
    re.I,
)
_STEP = re.compile(r"(?<![\w_])(?:step|iter(?:ation)?)[ \t]*+[:=]?[ \t]*+(?P<step>\d+)", re.I)
_BATCH = re.compile(r"^nb2ddp: batch .* = (?P<total>\d+) per step$")
_REPLICAS = re.compile(
    r"^nb2ddp: (?P<replicas>\d+ (replicas equal, bit for bit|ranks hold one model in shards))"
    r"(?:, after (?P<steps>\d+) steps)?"
)
_TRAINER_BEGINS = re.compile(r"\bTotal (?:optimization )?steps = [\d,]+")
_MODEL_LOADS = re.compile(r"^==\(\(=+\)\)==\s+Unsloth [\w.]+: Fast")
_TRANSCRIPT_LINES = 4000

# Stages by the labels that datasets, transformers, huggingface_hub, TRL and Unsloth give to their bars.
_LOADS = re.compile(r"\b(?:down)?load|fetch|safetensors|\.(?:json|bin|model|txt|pt)\b", re.I)
_HAS_DATA = re.compile(
    r"token|\bmap|filter|truncat|pack(?:ing|ed)|\beos\b|chat ?template|data ?set|\bsplit|examples?\b"
    r"|preprocess",
    re.I,
)
_SAVES = re.compile(r"\bsav(?:e|ing)|writing|upload|merging|gguf|quanti[sz]ing", re.I)
_STAGES = (("loading", _LOADS), ("tokenising", _HAS_DATA), ("saving", _SAVES))
AFTER = "after training"
WORDS = {
    "starting": "starting: no output yet; importing libraries takes a while",
    "running": "running: no step and no loss is printed yet",
    "loading": "loading",
    "tokenising": "tokenising: the rows are prepared",
    "compiling": "compiling: the first step takes longer",
    "training": "training",
    "saving": "saving",
    AFTER: "after training: the rest of the notebook, and the end of the processes",
}
"""What is said of each stage."""

_TRAINS = re.compile(r"\W*(?:epochs?|train(?:ing)?|steps?|iter(?:ation)?s?|fine-?tun\w+)\b", re.I)


@dataclass
class Progress:
    """What is known so far; `feed` it with the output as it comes.

    ``step`` and ``total`` count training steps (of this epoch's bar, in a loop with a bar for each);
    ``seconds_left`` and ``steps_per_second`` are tqdm's own numbers. ``stage`` is "starting", "running", "loading",
    "tokenising", "compiling" (the first step), "training", "saving" or "after training", or the label of a bar
    of another kind.
    ``replicas`` is the runtime's sentence about the comparison of the ranks' parameters.
    """

    step: int = 0
    total: int = 0
    seconds_left: float | None = None
    steps_per_second: float | None = None
    batch: int | None = None
    replicas: str | None = None
    stage: str = "starting"
    records: list[Record] = field(default_factory=list)
    transcript: deque[str] = field(default_factory=lambda: deque(maxlen=_TRANSCRIPT_LINES))
    _rest: str = ""
    _seen: _Bar | None = None  # the last one that may be the training's
    _likely: _Bar | None = None  # shown as the training's until a loss says which one it is
    _training: _Bar | None = None
    _trainer: bool = False  # has announced itself
    _earlier_steps: int = 0
    _counted_steps: int = 0  # by the runtime
    _had_bar: bool = False
    _below_bar: bool = False  # nothing but bars and records since the last one
    _stale: bool = False  # other text came after the last bar had ended

    @property
    def loss(self) -> float | None:
        return next((record["loss"] for record in reversed(self.records) if "loss" in record), None)

    @property
    def steps(self) -> int:
        """Training steps so far, of all epochs: by a Trainer's bar, as the runtime counted, or by what is shown."""
        logged = self.records[-1]["step"] if self.records and self._counts_on() else 0
        shown = int(max(self._earlier_steps + self.step, logged))
        return (shown if self._trainer else 0) or self._counted_steps or shown

    @property
    def samples_per_second(self) -> float | None:
        """Over all ranks: the Trainer's own final number, before that the effective batch times the speed."""
        key = "train_samples_per_second"
        by_speed = self.batch * self.steps_per_second if self.batch and self.steps_per_second else None
        return next((record[key] for record in reversed(self.records) if key in record), by_speed)

    @property
    def fraction(self) -> float:
        return min(1.0, self.step / self.total) if self.total else 0.0

    @property
    def doing(self) -> str:
        """The stage where steps do not tell it: before the first one, and after the last."""
        return self.stage if self.step == 0 or self.stage in ("saving", AFTER) else ""

    def curve(self, key: str = "loss") -> list[tuple[float, float]]:
        """Return (step, value) of a logged number, where it is finite; numbered where steps do not count on."""
        points = [
            (record["step"], record[key])
            for record in self.records
            if key in record and math.isfinite(record[key])
        ]
        if any(step for step, _ in points) and self._counts_on():
            return points
        return [(number, value) for number, (_, value) in enumerate(points, 1)]

    def _counts_on(self) -> bool:
        """Return whether no step is below the one before: a loop may count anew in each epoch."""
        return all(a["step"] <= b["step"] for a, b in itertools.pairwise(self.records))

    def feed(self, text: str) -> str:
        """Take the next piece of output; return what of it is for people: no bars and no log dicts."""
        *lines, rest = (self._rest + text).split("\n")
        shown = [line for raw in lines for line in self._line(raw)]
        self._rest = self._without_bars(rest)  # a bar is complete before its line is
        return "".join(f"{line}\n" for line in shown)

    def finish(self) -> str:
        """Take the end of the output; return a last line that has no line feed."""
        return self.feed("\n") if self._rest else ""

    def _line(self, raw: str) -> Iterator[str]:
        text = self._without_bars(raw)
        plain = _ANSI.sub("", text)
        self._below_bar |= self._had_bar
        self._had_bar = False
        if self._below_bar and not plain.strip():  # erased, or left for a bar below another one
            return
        if record := _as_record(plain):
            self._note(record)
            return
        self._below_bar = False
        self.transcript.append(plain)
        self._hear(plain)
        yield text

    def _hear(self, plain: str) -> None:
        """Read a line that is neither a bar nor a record."""
        if match := _BATCH.match(plain):
            self.batch = int(match["total"])
            self._trainer = True
        elif match := _REPLICAS.match(plain):
            self.replicas = match["replicas"]
            self._counted_steps += int(match["steps"] or 0)
            self.stage = AFTER
        elif _TRAINER_BEGINS.search(plain):
            self._trainer, self.stage = True, "compiling"
        elif _MODEL_LOADS.match(plain):
            self.stage = "loading"
        elif match := _LOSS.search(plain):
            said = _STEP.search(plain)
            step = int(said["step"]) if said else 0
            step = self._earlier_steps + step if step <= self.total or not self.total else step
            self._note({**({"step": step} if said else {}), "loss": float(match["loss"])})
        elif plain.strip():
            self.stage = "running" if self.stage == "starting" else self.stage
            self._stale = self._seen is not None and self._seen.ended

    def _note(self, record: Record) -> None:
        if "loss" in record:
            self.stage = "training"
            if self._seen is not None and not self._stale and not (self._training and self._seen.ended):
                # an evaluation's bar has ended when the next loss comes
                inner = self._seen.ended and self._likely is not None and not self._likely.ended
                self._advance(self._likely if inner and self._likely else self._seen, sure=True)
        if "train_runtime" in record:
            self.stage = AFTER
        before = self.records[-1]["step"] if self.records else 0
        self.records.append({"step": self._earlier_steps + self.step or before, **record})

    def _without_bars(self, raw: str) -> str:
        """Read all bars in a line that carriage returns overwrite; return what stands there last.

        A record may be among them: its line feed is on stdout, and a bar on stderr may come before it.
        """
        text, pieces = "", raw.split("\r")
        for number, text in enumerate(pieces, 1):
            while match := _BAR.match(text):
                self._see(match)
                text = text[match.end() :]
            if match := _COUNT.match(text):
                text = text[match.end() :]
                self._had_bar = True
            if number < len(pieces) and (record := _as_record(_ANSI.sub("", text))):
                self._note(record)
        return text

    def _see(self, match: re.Match[str]) -> None:
        label, done, total = match["label"] or "", int(match["done"]), int(match["total"])
        self._had_bar = True
        named = bool(_TRAINS.match(label)) and not _HAS_DATA.search(label)
        # the first stage whose labels have words like this one's; None where the label does not say it
        stage = None if named else next((s for s, pattern in _STAGES if pattern.search(label)), None)
        if stage is not None:
            if self._training is None or stage == "saving":
                self.stage = AFTER if self.replicas and done >= total else stage
            return
        rate = None if "?" in match["rate"] else float(match["rate"])
        if rate and match["unit"].startswith("s/"):
            rate = 1 / rate
        bar = _Bar((re.sub(r"\d+", "#", label), total), done, _seconds(match["left"]), rate)
        self._seen, self._stale = bar, False
        current = self._training or self._likely
        if current is not None and current.key == bar.key:
            self._advance(bar, sure=self._training is not None)
        elif self._training is None:
            loss = "loss" in (match["postfix"] or "").lower()
            if loss or ((named or (self._trainer and not label)) and (current is None or current.ended)):
                self._advance(bar, sure=loss)
            elif current is None:
                self.stage = label or (f"{done} of {total}" if done else "compiling")

    def _advance(self, bar: _Bar, *, sure: bool) -> None:
        """Take the training's steps from its bar."""
        if self._training is not None and self._training.key != bar.key:  # another training
            self._earlier_steps += self.step
        elif self._training is not None and bar.done < self.step:  # the next epoch's bar
            self._earlier_steps += self.total
        self._likely = bar
        if sure:
            self._training = bar
        self.step, self.total, self.seconds_left = bar.done, bar.key[1], bar.left
        self.stage = "training" if bar.done or self.stage == "training" else "compiling"
        if bar.rate:
            self.steps_per_second = bar.rate


def _as_record(line: str) -> Record | None:
    """Return the dict that the Trainer printed, as numbers; None when the line is something else.

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
    """Return the seconds of tqdm's [[hours:]minutes:]seconds."""
    if "?" in clock:
        return None
    return float(sum(int(part or 0) * 60**i for i, part in enumerate(reversed(clock.split(":")))))
