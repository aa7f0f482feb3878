"""Run scripts in processes forked from a preloaded one: a run on two ranks takes a second instead of ten.

The store, the environment and the ends are those of torchrun: an agent process keeps the store, the other
ranks are stopped soon after one has failed, and the first failure's exit code is the run's.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIMIT = 60.0  # seconds that the ranks of one run compute together; on a busy machine they last longer
LASTS = 5  # times LIMIT, by the clock
PATIENCE = 12  # seconds that the script's watchdog lets ranks wait at different places
IDLE = 25.0  # seconds without any work in any rank: they wait for one another, and the watchdog says nothing
GRACE = 4.0  # seconds that ranks get after one has failed
MODULES = (
    "torch torch.distributed torch.nn.parallel torch.utils.data torch._dynamo torch.optim.swa_utils "
    "torch.distributed.elastic.multiprocessing.errors transformers datasets accelerate peft trl pandas "
    "sklearn.metrics sklearn.model_selection sklearn.datasets tqdm.auto safetensors.torch accelerate.utils "
    "transformers.trainer torch.distributed.algorithms.join scipy.stats csv pickle"
).split()
NAMES = {
    "transformers": "Trainer TrainingArguments TrainerCallback EarlyStoppingCallback PreTrainedTokenizerFast "
    "BertConfig BertForSequenceClassification BertForTokenClassification LlamaConfig LlamaForCausalLM "
    "AutoModelForCausalLM AutoModelForSequenceClassification get_linear_schedule_with_warmup set_seed "
    "DataCollatorForLanguageModeling DataCollatorWithPadding default_data_collator AutoTokenizer",
    "trl": "SFTTrainer SFTConfig",
    "peft": "LoraConfig get_peft_model PeftModel",
}


def preload() -> None:
    """Import what programs import, before the first fork; nothing is computed, so no thread is started."""
    os.environ.update(
        CUDA_VISIBLE_DEVICES="",
        OMP_NUM_THREADS="1",
        OPENBLAS_NUM_THREADS="1",
        HF_HUB_OFFLINE="1",
        HF_DATASETS_DISABLE_PROGRESS_BARS="1",
        TOKENIZERS_PARALLELISM="false",
        TRANSFORMERS_VERBOSITY="error",
        WANDB_MODE="disabled",
    )
    with contextlib.redirect_stderr(open(os.devnull, "w")):  # libraries' warnings, once
        for name in MODULES:
            importlib.import_module(name)
        for name, attributes in NAMES.items():
            for attribute in attributes.split():
                getattr(importlib.import_module(name), attribute)
    import torch

    torch.set_num_threads(1)
    _replace_triton()
    gc.collect()
    gc.freeze()


def _replace_triton() -> None:
    """Let TRL's SFTTrainer compute its loss in plain PyTorch: its kernel needs a GPU."""
    import torch
    from trl.trainer import utils

    if not hasattr(utils, "_ChunkedLogProbFunction"):
        return

    def apply(hidden, weight, bias, targets, temperature, chunk_size, softcap, scale, outputs):  # type: ignore[no-untyped-def]
        scores = torch.nn.functional.linear(hidden, weight, bias).float() * scale / temperature
        logs = torch.log_softmax(scores, dim=-1)
        optional = {
            "entropy": lambda: -(logs.exp() * logs).sum(-1),
            "log_sum_sq_probs": lambda: torch.logsumexp(2 * logs.detach(), -1),
            "mean_logits": lambda: scores.detach().mean(-1),
            "is_top1": lambda: scores.argmax(-1) == targets,
        }
        found = [make() if name in outputs else None for name, make in optional.items()]
        return (logs.gather(-1, targets[:, None]).squeeze(-1), *found)

    utils._ChunkedLogProbFunction = types.SimpleNamespace(apply=apply)


@dataclass
class Rank:
    """How one process of a run has ended."""

    code: int
    steps: list[dict[str, Any]] = field(default_factory=list)
    printed: list[tuple[int, str]] = field(default_factory=list)
    error: str = ""
    stderr: str = ""
    noted: bool = False  # False: it was killed before it could write down what it saw

    @property
    def lines(self) -> list[str]:
        """What it printed, without the script's own lines."""
        return [text for _, text in self.printed if not text.startswith("nb2ddp")]


@dataclass
class Run:
    """One run that has ended."""

    folder: Path
    ranks: list[Rank]
    seconds: float
    hung: bool
    first_failed: int | None

    @property
    def code(self) -> int:
        return self.ranks[self.first_failed].code if self.first_failed is not None else 0

    @property
    def text(self) -> str:
        return "\n".join(
            [
                *(text for rank in self.ranks for _, text in rank.printed),
                *(rank.stderr for rank in self.ranks),
            ]
        )


def _child(folder: Path, script: Path, rank: int | None, size: int, port: int, name: str) -> None:
    """Be one process of a run; never returns."""
    from differential.observe import watch

    _end_with_parent()
    label = "single" if rank is None else str(rank)
    watch_folder = folder.with_name(f"{folder.name}-watch")
    out, err = (
        os.open(watch_folder / f"{kind}-{label}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for kind in ("stdout", "stderr")
    )
    os.dup2(out, 1)
    os.dup2(err, 2)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(folder)
    sys.path[:] = [
        str(script.parent),
        *(p for p in sys.path if p not in ("", str(Path(__file__).parents[1]))),
    ]
    sys.argv = [script.name]
    for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        os.environ.pop(key, None)
    if rank is not None:
        os.environ.update(
            RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size),
            GROUP_RANK="0", GROUP_WORLD_SIZE="1", ROLE_RANK=str(rank), ROLE_WORLD_SIZE=str(size),
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True",
            TORCHELASTIC_RUN_ID=name, TORCHELASTIC_RESTART_COUNT="0", TORCHELASTIC_MAX_RESTARTS="0",
            TORCHELASTIC_ERROR_FILE=str(watch_folder / f"error-{label}.json"), NB2DDP_PATIENCE=str(PATIENCE),
        )  # fmt: skip
    sys.modules.pop("ddp_support", None)  # it keeps the state of one process of one run
    sys.dont_write_bytecode = True
    watching = watch(watch_folder / f"seen-{label}.json", script)
    _seed(rank)
    main = types.ModuleType("__main__")
    main.__file__ = str(script)
    sys.modules["__main__"] = main
    code = _execute(main, script, watching)
    sys.stderr.flush()
    os._exit(code)


def _end_with_parent() -> None:
    """Lead a process group, so that what is started here can be ended too, and end when the parent does."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _seed(rank: int | None) -> None:
    """Seed the generators: rank 0 and a single process alike, so that they can be compared."""
    import numpy
    import torch

    seed = 12345 + 1000 * (rank or 0)
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def _execute(main: types.ModuleType, script: Path, watching: Any) -> int:
    code = 0
    try:
        exec(compile(script.read_text(), str(script), "exec"), main.__dict__)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException as error:
        code = 1
        watching.error = "".join(traceback.format_exception_only(error)).strip()
        watching.where = traceback.format_exc()
        with contextlib.suppress(BaseException):
            sys.excepthook(type(error), error, error.__traceback__)
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    return code


def _agent(told: int) -> None:
    """Keep the ranks' store, as torchrun's agent does, and write its port to a pipe; never returns."""
    from torch.distributed import TCPStore

    _end_with_parent()
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    os.write(told, str(store.port).encode())
    os.close(told)
    while store is not None:
        time.sleep(60)


def _start_agent() -> tuple[int, int]:
    """Return the process that keeps the ranks' store, and the port that it was given."""
    read, write = os.pipe()
    agent = os.fork()
    if agent == 0:
        try:
            os.close(read)
            _agent(write)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        return agent, int(pipe.read())


def run(folder: Path, script: Path, ranks: int, limit: float = LIMIT) -> Run:
    """Run ``script`` in ``folder`` on ``ranks`` ranks; 0 is one plain process without them."""
    watch_folder = folder.with_name(f"{folder.name}-watch")
    watch_folder.mkdir(parents=True)
    sys.stdout.flush()
    pids: dict[int, int] = {}
    agent, port = _start_agent() if ranks else (None, 0)
    for number in range(max(ranks, 1)):
        pid = os.fork()
        if pid == 0:
            try:
                _child(folder, script, number if ranks else None, ranks, port, folder.parent.name)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(99)
        pids[pid] = number
    start = time.monotonic()
    codes, first_failed, hung = _wait(pids, start, limit)
    seconds = time.monotonic() - start
    for pid in [*pids, *([agent] if agent else [])]:  # what the run has started, too
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if pid == agent or kill is os.killpg:
                    kill(pid, signal.SIGKILL)
    if agent:
        os.waitpid(agent, 0)
    seen = [_read(watch_folder, str(r) if ranks else "single", codes[r]) for r in range(max(ranks, 1))]
    return Run(folder, seen, seconds, hung, first_failed)


def _wait(pids: dict[int, int], start: float, limit: float) -> tuple[dict[int, int], int | None, bool]:
    codes: dict[int, int] = {}
    first_failed, failed_at, hung, told = None, 0.0, False, False
    worked, worked_at = -1, start
    while len(codes) < len(pids):
        for pid, number in pids.items():
            if number in codes:
                continue
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[number] = os.waitstatus_to_exitcode(status)
                if codes[number] and first_failed is None:
                    first_failed, failed_at = number, time.monotonic()
        now = time.monotonic()
        left = [pid for pid, number in pids.items() if number not in codes]
        if left and now - worked_at > 0.5:
            ticks = sum(_ticks(pid) for pid in left)
            if ticks > worked + 5 or any(_runs(pid) for pid in left):
                worked, worked_at = ticks, now
        over = worked > 100 * limit or now - start > LASTS * limit
        if left and first_failed is None and (over or now - worked_at > IDLE):
            if not told:  # where each rank hangs
                hung = told = True
                for pid in left:
                    os.kill(pid, signal.SIGUSR1)
                time.sleep(0.3)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        elif left and first_failed is not None and now - failed_at > GRACE:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return codes, first_failed, hung


def _ticks(pid: int) -> int:
    """Hundredths of a second that a process has computed; waiting loops of libraries count a few."""
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12]) if fields else 0


def _runs(pid: int) -> bool:
    """Whether a process computes, or would if it got a core or its file."""
    return _stat(pid)[:1] in (["R"], ["D"])


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _read(folder: Path, label: str, code: int) -> Rank:
    stderr = (
        (folder / f"stderr-{label}.txt").read_text(errors="replace")
        if (folder / f"stderr-{label}.txt").exists()
        else ""
    )
    file = folder / f"seen-{label}.json"
    if not file.exists():
        return Rank(code, stderr=stderr)
    seen = json.loads(file.read_text())
    printed = [(int(line), text) for line, text in seen["printed"]]
    return Rank(code, seen["steps"], printed, seen["error"], stderr, noted=True)
