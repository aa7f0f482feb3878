"""What is to run and on how many machines: the same for every target. And how values are quoted."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nb2ddp.ddp_folder import SCRIPT, SETUP, SUPPORT, shards, spreads
from nb2ddp.errors import EmitError, OptionError

RESUME = "resume.py"
"""The program that starts the script from its last checkpoint, beside the script."""

# A Trainer is made; the tokenizers library has classes of that name too, which train no model.
_TRAINER = re.compile(r"(?<!Bpe)(?<!WordPiece)(?<!Unigram)(?<!WordLevel)Trainer\(")

_NODES = re.compile(r"(?P<fewest>[1-9]\d{0,3})(?::(?P<most>[1-9]\d{0,3}))?")


@dataclass(frozen=True)
class Job:
    """A converted script and the machines that it shall run on.

    notebook: name of the notebook, for the texts.
    script, setup: ``train_ddp.py`` and ``setup_env.py``; ``setup`` is None where nothing is installed.
    support: ``ddp_support.py``, which the script imports; None where the script carries it.
    nodes: how many machines, as torchrun writes it: "2", or "1:4" for at least one and at most four.
    gpus: processes on each machine, one for each GPU.
    cpu: the processes run on the CPU.
    shared_fs: the machines share the disk that the script works on.
    save_steps: optimizer steps from one extra checkpoint to the next; None for the script's own alone.

    Raises OptionError for numbers that cannot be, and EmitError for a script that is for one process.
    """

    notebook: str
    script: str
    setup: str | None
    support: str | None = None
    nodes: str = "1"
    gpus: int = 2
    cpu: bool = False
    shared_fs: bool = True
    save_steps: int | None = None

    def __post_init__(self) -> None:
        found = _NODES.fullmatch(self.nodes)
        if not found or int(found["most"] or found["fewest"]) < int(found["fewest"]):
            raise OptionError(f"--nodes {self.nodes} is no number of machines; give one, such as 2, or 1:4.")
        for name, value in (("gpus", self.gpus), ("save-steps", self.save_steps)):
            if value is not None and value < 1:
                raise OptionError(f"--{name} {value} has to be at least 1.")
        if spreads(self.script):
            raise EmitError(
                "This script is for one process that spreads the model over the GPUs of one machine "
                f"(--strategy balanced): run it with `python {SCRIPT}`, or convert without --strategy."
            )

    @property
    def min_nodes(self) -> int:
        return int(self.nodes.split(":")[0])

    @property
    def max_nodes(self) -> int:
        return int(self.nodes.split(":")[-1])

    @property
    def world_size(self) -> int:
        return self.max_nodes * self.gpus

    @property
    def machines(self) -> str:
        """For example "2 machines with 4 GPUs each"."""
        count = self.nodes.replace(":", " to ")
        what = ("process" if self.gpus == 1 else "processes") if self.cpu else "GPU" + "s" * (self.gpus > 1)
        if self.nodes == "1":
            return f"1 machine with {self.gpus} {what}"
        return f"{count} machines with {self.gpus} {what} each"


def has_trainer(script: str) -> bool:
    """Return whether a script trains with a Trainer, which can save checkpoints and resume from them."""
    return _TRAINER.search(script) is not None


def resuming_runner() -> str:
    """Return the program that runs a script on one machine, going on from the last checkpoint."""
    from nb2ddp import rendering

    return rendering.render("run/resume.py.j2")


def files(
    job: Job, name: str, options: object, *, engine: str | None = None, resumes: bool = False
) -> dict[str, str]:
    """Return the files of one target: the script, its install step, and ``name``, which starts them.

    engine: what starts a fixed number of machines; None: a range will do. resumes: it goes on from a Trainer's
    checkpoints, where the script has one.

    Raises OptionError for numbers that the engine cannot have, and EmitError for a sharded model on machines that
    cannot all read its checkpoints.
    """
    from nb2ddp import rendering  # the command line reads the targets' options without it

    if engine is not None and job.min_nodes != job.max_nodes:
        raise OptionError(f"--nodes {job.nodes}: {engine} starts a fixed number of machines; give one.")
    if job.save_steps is not None and not resumes:
        raise OptionError("--save-steps works with torchrun and slurm, which go on from checkpoints.")
    resumes = resumes and has_trainer(job.script)
    if job.save_steps is not None and not resumes:
        raise OptionError(
            "--save-steps is for a Trainer's checkpoints, and this script trains without a Trainer."
        )
    if resumes and shards(job.script) and job.max_nodes > 1 and not job.shared_fs:
        raise EmitError(
            "The checkpoints of a sharded model (--strategy fsdp) are written by the first machine alone: the others "
            "need the same disk to go on from them. Leave out --no-shared-fs."
        )
    resume = rendering.render("cluster/resume.py.j2") if resumes else None
    made = {SCRIPT: job.script, SETUP: job.setup, SUPPORT: job.support, RESUME: resume}
    filters: dict[str, Callable[..., Any]] = {
        "sh": shlex.quote,
        "yaml": yaml_string,
        "yaml_block": yaml_block,
        "arguments": arguments,
    }
    made[name] = rendering.render(f"cluster/{name}.j2", filters, job=job, options=options, resumes=resumes)
    return {file: text for file, text in made.items() if text is not None}


def checked(option: str, value: str | None, pattern: str, form: str) -> None:
    """Raise OptionError for a value that its engine would not take, or that would break out of its place."""
    if value is not None and not re.fullmatch(pattern, value):
        raise OptionError(f"{option} {value!r} cannot be used: it has to look like {form}.")


def port(option: str, value: int) -> None:
    """Raise OptionError for a number that is no port of a user's program."""
    if not 1024 <= value < 65536:
        raise OptionError(f"{option} {value} is no port to use: it has to be between 1024 and 65535.")


# ---- quoting ----------------------------------------------------------------------------------------

# What YAML (1.1 and 1.2) takes in a text as it is; of line breaks only \n means the same everywhere.
_PLAIN = re.compile(
    r"[\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*"
)
_SPECIAL = re.compile(r"[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


def yaml_string(text: str) -> str:
    """Return ``text`` between double quotes, as YAML reads it back."""
    return _SPECIAL.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def yaml_block(text: str, indent: int) -> str:
    """Return ``text`` as a literal block with its lines as they are, ``indent`` spaces in; else between quotes."""
    first = text.split("\n", 1)[0]
    if not _PLAIN.fullmatch(text) or not first.strip() or first.startswith((" ", "\t")):
        return yaml_string(text)
    body = text.rstrip("\n")
    breaks = len(text) - len(body)
    lines = [f"{' ' * indent}{line}" if line else "" for line in body.split("\n")]
    return "\n".join([{0: "|-", 1: "|"}.get(breaks, "|+"), *lines]) + "\n" * (breaks - 1)


_MOST_IN_ARGUMENT = 100_000  # bytes; Linux takes 128 KiB in one argument (MAX_ARG_STRLEN)
_MOST_IN_JOB = 1_000_000  # bytes; Kubernetes takes 1.5 MiB in one object


def arguments(text: str) -> list[str]:
    """Return ``text`` in pieces for a Kubernetes ``args`` list, each short enough for an argument.

    Such a list replaces ``$(NAME)`` and takes ``$$`` for ``$``. A piece begins with a line that is not indented,
    where there is one. Raises EmitError for a text that is too long for a job.
    """
    size = len(text.encode())
    if size > _MOST_IN_JOB:
        raise EmitError(
            f"A script of {size / 1000:.0f} kB is too long for a TrainJob ({_MOST_IN_JOB // 1000} kB): move "
            "the data that is written out in the notebook to a file."
        )
    pieces = []
    while len(text.encode()) > _MOST_IN_ARGUMENT:
        head = text.encode()[:_MOST_IN_ARGUMENT].decode(errors="ignore")
        starts = [found.start() for found in re.finditer(r"^\w", head, re.MULTILINE)]
        cut = starts[-1] if starts and starts[-1] else len(head)
        pieces.append(text[:cut])
        text = text[cut:]
    return [re.sub(r"\$(?=[$(])", "$$", piece) for piece in [*pieces, text]]
