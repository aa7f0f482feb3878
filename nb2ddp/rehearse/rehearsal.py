"""Run a rehearsal: the notebook in one process, the script in one and in several, and compare them."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

from nb2ddp.ddp_folder import SCRIPT
from nb2ddp.errors import RehearsalError
from nb2ddp.rehearse.checks import data, figures, model, run
from nb2ddp.rehearse.evidence import ADVICE, Evidence, Fault, Point, last_line
from nb2ddp.rehearse.observed import Rank, failing_line, observe
from nb2ddp.rehearse.runs import REFERENCE, Run, Settings, execute, prepare
from nb2ddp.rehearse.subject import Subject
from nb2ddp.secrets import masker

_MORE_ROWS = 8192  # for a notebook that takes half a percent of its data set
_NEEDS_GPU = re.compile(r"\b(?:CUDA|cuda|GPUs?|NVIDIA|[Cc]uda error)\b")
_TOO_FEW = ("IndexError", "num_samples=0")
_DEFAULT = Settings()
Execute = Callable[[Sequence[Run], Settings, Path, str], None]
Outcome = Literal["same", "different", "fails", "hangs", "reordered"]

POINTS: tuple[Callable[[Evidence], Point], ...] = (
    *(model.loads, model.replicas, model.losses, data.samples, run.files, run.ends, run.plain),
    *(model.gradients, data.batch, run.arguments, run.prints, figures.figures),
)
"""What is checked of a conversion of ours: the promises of the README, by number, and what goes with them."""

HANDMADE = (run.group, *POINTS)
"""What is checked of any other script."""

OUTCOMES: Mapping[Outcome, int] = {"same": 0, "different": 1, "fails": 4, "hangs": 5, "reordered": 6}
"""What a script turns out to be beside its notebook, and the exit code of `nb2ddp prove`."""

NOT_SHOWN = (
    ("NCCL", "the ranks talk through gloo: its topology, time-outs and speed are other ones"),
    ("memory of a GPU", "the model is tiny; whether the real one fits on a T4 is another question"),
    ("4-bit and 16-bit arithmetic", "a CPU trains in 32 bit; rounding and overflow are not seen"),
    ("GPU kernels", "Triton kernels are interpreted, and those of bitsandbytes and FlashAttention not used"),
    ("vLLM, and Unsloth's own models", "they need a GPU; on a CPU Unsloth takes those of Transformers"),
    ("speed, and how good the model gets", "a few steps of a random model on a CPU tell neither"),
)
"""What no rehearsal shows, and why."""


@dataclass(frozen=True)
class Rehearsal:
    """The result: ``points`` and the losses of each step, in one process and in ``nproc``.

    ``replaced``: each model, data set, command or setting that differs from the real run: what, by what, why, how
    many times. ``versions`` are those of the Python that trained and of its packages. ``other_losses`` says why one
    process and several compute other losses by nature, empty where they are to agree; ``parameter_difference`` is
    relative to the notebook's trained parameters, None where they cannot be compared.
    """

    name: str
    nproc: int
    points: tuple[Point, ...]
    losses: tuple[tuple[float | None, float | None], ...]
    replaced: tuple[Mapping[str, str | int], ...]
    notes: tuple[str, ...]
    stacks: tuple[tuple[int, str], ...]
    seconds: float
    date: datetime
    versions: Mapping[str, str]
    other_losses: str = ""
    parameter_difference: float | None = None

    @property
    def passed(self) -> bool:
        return not any(point.faults for point in self.points)

    @property
    def outcome(self) -> Outcome:
        """What the script turned out to be: the same run, another one, one that does not come to its end."""
        keys = {fault.key for fault in self.faults}
        if "hang" in keys:
            return "hangs"
        if keys & {"failed", "early-exit", "no-training"}:
            return "fails"
        if "other-shuffle" in keys and keys <= {"other-shuffle", "plain-differs"}:
            return "reordered"
        return "different" if keys else "same"

    @property
    def faults(self) -> list[Fault]:
        """What is wrong, causes before consequences."""
        order = list(ADVICE)
        return sorted((f for point in self.points for f in point.faults), key=lambda f: order.index(f.key))


def rehearse(
    subject: Subject,
    settings: Settings = _DEFAULT,
    *,
    keep: Path | None = None,
    say: Callable[[str], None] = lambda title: None,
    start: Execute = execute,
) -> Rehearsal:
    """Run the subject in one process and in several, and check the points.

    ``keep``: a folder for all that the runs write; else it is temporary. ``say`` gets the title of each phase.
    ``start`` makes the runs: other processes than those of `execute` where tests have some ready.

    Raises:
        RehearsalError: the notebook's own code does not train here, so that there is nothing to compare with;
            or this machine lets nothing be written.
    """
    began, date = time.monotonic(), datetime.now().astimezone()
    short = None if len(tempfile.gettempdir()) < 30 else "/tmp"
    scratch = Path(tempfile.mkdtemp(prefix="nb2ddp-", dir=short))
    work = scratch / "runs" if keep is None else keep.resolve()

    def run_all(title: str, *runs: Run) -> list[Rank]:
        say(title)
        start(runs, settings, scratch, title)
        return observe(runs[0])

    def run_alone(title: str, again: str = "") -> tuple[Rank, Run, Run]:
        one = prepare(work, f"one{again}", subject, settings, REFERENCE)
        alone = prepare(work, f"alone{again}", subject, settings, SCRIPT)
        (reference,) = run_all(title, one, alone)
        return reference, one, alone

    try:
        reference, one, alone = run_alone("one process: the notebook's own code, and the script")
        if _has_too_few_rows(reference):
            said = f"one process, again with {_MORE_ROWS} rows: {settings.rows} are too few"
            settings = replace(settings, rows=_MORE_ROWS)
            reference, one, alone = run_alone(said, "-again")
        _check(reference, one, settings.python)
        several = prepare(work, "several", subject, settings, SCRIPT, settings.nproc)
        ranks = run_all(f"{settings.nproc} processes: the script", several)
        say("comparing")
        (single,) = observe(alone)
        evidence = Evidence(several, reference, single, alone, ranks, subject.other_losses, subject.handmade)
        if subject.handmade:
            _check_gpu(evidence, subject.script)
        points = [point(evidence) for point in (HANDMADE if subject.handmade else POINTS)]
        if subject.handmade:
            if data.other_shuffle(evidence):
                again = prepare(
                    work, "reordered", subject, settings, REFERENCE, order=data.ranks_order(evidence)
                )
                title = "one process, again with the samples in the order of the ranks"
                evidence = replace(evidence, one=run_all(title, again)[0])
                for number, check in enumerate(HANDMADE):
                    if check not in (data.samples, run.plain):  # these ask for the notebook's own order
                        points[number] = check(evidence)
            points = _of_ranks(points)
        return Rehearsal(
            subject.name,
            settings.nproc,
            tuple(points),
            tuple(evidence.rows),
            _replaced(evidence.ranks),
            _notes(evidence),
            tuple((rank.number, rank.stack) for rank in evidence.ranks if rank.stack),
            time.monotonic() - began,
            date,
            next((dict(note["versions"]) for note in reference.of("begin")), {}),
            subject.other_losses,
            model.trained_apart(evidence),
        )
    except OSError as error:
        raise RehearsalError(f"The rehearsal cannot write or start what it needs: {error}.") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _of_ranks(points: Sequence[Point]) -> list[Point]:
    """Leave out what needs ranks, for a script that never makes ranks of its processes."""
    group = points[0]
    if not group.faults:
        return list(points)
    judged = (group.title, "plain python")
    unseen = [replace(point, measured="there are no ranks", faults=(), seen=False) for point in points]
    return [p if p.title in judged else other for p, other in zip(points, unseen, strict=True)]


def _check_gpu(evidence: Evidence, script: str) -> None:
    """Raise RehearsalError for a script that asks for a GPU before it trains."""
    for rank in evidence.ranks:
        if rank.code and not rank.steps and _NEEDS_GPU.search(error := last_line(rank)):
            line = failing_line(rank.errors, SCRIPT)
            where = f" in line {line}, `{script.splitlines()[line - 1].strip()}`" if line else ""
            raise RehearsalError(
                f"The script needs a GPU{where} ({masker([script])(error.rstrip('.'))}). It is judged on a CPU: let it "
                "use the CPU where torch.cuda.is_available() is false."
            )


def _has_too_few_rows(reference: Rank) -> bool:
    """Return whether the notebook's own code failed because its data set is shorter than the real one."""
    shortened = any("rows" in note["what"] + note["by"] for note in reference.of("replaced"))
    error = last_line(reference)
    return shortened and not reference.steps and any(word in error for word in _TOO_FEW)


def _check(reference: Rank, run: Run, python: str) -> None:
    """Raise RehearsalError unless the notebook's own code trains here: without it nothing can be compared."""
    if run.hung:
        raise RehearsalError(f"The notebook's own code does not come to its end here: {run.hung}.")
    has_trained = reference.steps and len(reference.of("train")) == len(reference.of("trained"))
    if reference.code and not has_trained:
        place, hint = _place(reference), _hint(reference, python)
        raise RehearsalError(f"The notebook's own code fails on this machine{place}.{hint}")
    if not reference.steps:
        raise RehearsalError("The notebook's own code makes no optimizer step that could be compared.")


def _hint(reference: Rank, python: str) -> str:
    """Return what a user may do about a notebook that does not run here; empty where that is not known."""
    if last_line(reference).startswith("ModuleNotFoundError"):
        return f" Install it for {python}, or name a Python that has it with --python."
    made_up = [note["what"] for note in reference.of("replaced") if "synthetic rows" in note["by"]]
    return f" Synthetic rows stood for {made_up[0]}: --data NAME=PATH gives real ones." if made_up else ""


def _place(rank: Rank) -> str:
    """Return the line of the notebook's own code at which a run failed, and its error, without secrets."""
    error = last_line(rank) or f"exit code {rank.code}"
    code = (rank.folder / REFERENCE).read_text(encoding="utf-8")
    line = failing_line(rank.errors, REFERENCE)
    where = f" at `{code.splitlines()[line - 1].strip()}`" if line else ""
    return masker([code])(f"{where}: {error.rstrip('.')}")


def _notes(evidence: Evidence) -> tuple[str, ...]:
    notes, one = [], evidence.one
    count = evidence.undivided
    if count and not (evidence.handmade and count == len(evidence.together)):
        steps = f"{count} of {len(evidence.together)} steps"
        notes.append(f"In {steps} every rank computes the whole batch: that is right, but saves no time.")
    if evidence.reference_error:  # it fails after its training
        total = (one.folder / REFERENCE).read_text(encoding="utf-8").count(".train()")
        told = f" (number {trained} of {total})" if (trained := len(one.of("trained"))) < total else ""
        ends = f"the notebook's own code fails here{_place(one)}; what follows is not seen."
        notes.append(f"After its training{told} {ends}")
    return tuple(notes)


def _replaced(ranks: Sequence[Rank]) -> tuple[Mapping[str, str | int], ...]:
    notes = (note for rank in ranks for note in rank.of("replaced"))
    counts = Counter((str(note["what"]), str(note["by"]), str(note["why"])) for note in notes)
    return tuple(
        {"what": what, "by": by, "why": why, "times": times} for (what, by, why), times in counts.items()
    )
