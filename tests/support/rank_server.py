"""Fork the ranks of scripts from a process that has imported once what they import.

python -m tests.support.rank_server MODULE...

A line of JSON on stdin is a job, a line on stdout its result; jobs that arrive together run together. What a script
sees is what torchrun gives it: the environment, and a store that the agent keeps. It runs as ``__main__``. One thing
is not as under torchrun: the ranks hash strings alike, so that they order a set alike.
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
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
import types
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def _plain(value: Any) -> Any:
    """Make a note of what JSON can hold: tensors become lists of numbers, without loss."""
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def _environment(job: dict[str, Any], rank: int, port: int) -> dict[str, str]:
    if job["ranks"] == 0:
        return dict(job["environment"])
    per_machine = job["ranks"] // job["machines"]
    variables = {
        "RANK": rank,
        "LOCAL_RANK": rank % per_machine,
        "WORLD_SIZE": job["ranks"],
        "LOCAL_WORLD_SIZE": per_machine,
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": job["ranks"],
        "ROLE_NAME": "default",
        "GROUP_RANK": rank // per_machine,
        "GROUP_WORLD_SIZE": job["machines"],
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RUN_ID": "test",
        "TORCHELASTIC_RESTART_COUNT": job["attempt"],
        "TORCHELASTIC_MAX_RESTARTS": 3,
    }
    return {**{name: str(value) for name, value in variables.items()}, **job["environment"]}


def _be_rank(job: dict[str, Any], rank: int, port: int) -> None:
    """Run the job's script as one rank, and end this process as the interpreter would."""
    folder = Path(job["folder"])
    for number, name in ((1, "out"), (2, "err")):
        path = job.get("output") or folder / f"{name}-{job['attempt']}-{rank}"
        if "rehearsal" in job:
            path = Path(job["rehearsal"]) / f"rank{rank}.{name}"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    os.environ.update(_environment(job, rank, port))
    if job.get("apart"):  # a working folder for each rank
        shutil.copytree(
            folder, folder / f"rank{rank}", ignore=shutil.ignore_patterns("rank*", "o*-*", "e*-*")
        )
        folder /= f"rank{rank}"
    os.chdir(folder)
    sys.path[:0] = [str(folder), job["runtime"]]
    script = folder / job.get("name", "script.py")
    sys.argv = [str(script)]
    if "watch" in job:
        _watch(job, rank)
    import numpy
    import torch

    torch.set_num_threads(
        1
    )  # makes the pool that a fork has lost anew, before threads ask for it at one time
    if job.get("steps"):  # rank 0 and a single process start alike, so that they can be compared
        seed = 12345 + 1000 * rank
        random.seed(seed), numpy.random.seed(seed), torch.manual_seed(seed)
    else:  # as in processes of their own, the generators start apart
        random.seed(), numpy.random.seed(), torch.seed()
    if "rehearsal" in job:
        _rehearse(job["rehearsal"], rank)
    notes = folder / f"notes-{job['attempt']}-{rank}"

    def note(**values: Any) -> None:
        with notes.open("a") as file:
            file.write(json.dumps(_plain(values)) + "\n")

    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=str(script), note=note)
    sys.modules["__main__"] = main
    code = 0
    try:
        exec(compile(script.read_text(), str(script), "exec"), main.__dict__)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        code = 1
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def _watch(job: dict[str, Any], rank: int) -> None:
    """Watch this rank as tests/support/harness does, which the server has loaded; its processes are a session."""
    import sitecustomize  # type: ignore[import-not-found]

    sitecustomize.FOLDER, sitecustomize.RANK = job["watch"], str(rank) if job["ranks"] else "single"
    os.setsid()
    sitecustomize._note("sessions.txt", f"{os.getpid()}\n")
    for name, constant in (
        ("datasets.config", "HF_DATASETS_CACHE"),
        ("huggingface_hub.constants", "HF_HUB_CACHE"),
    ):
        if name in sys.modules:  # read from HF_HOME when they were imported
            value = Path(os.environ["HF_HOME"]) / constant.split("_")[1].lower()
            setattr(sys.modules[name], constant, value if name.startswith("datasets") else str(value))
    if job.get("steps"):
        _note_steps(job["watch"], rank)


def _rehearse(notes: str, rank: int) -> None:
    """Start the harness of a rehearsal as `sitecustomize` does in a process of its own."""
    os.environ |= {"NB2DDP_REHEARSAL": notes, "NB2DDP_REHEARSAL_RANK": str(rank)}
    from nb2ddp.rehearse.harness import begin

    begin()


def _note_steps(watch: str, rank: int) -> None:
    """Note each batch and step as a rehearsal does, and what is printed."""
    import torch

    from nb2ddp.rehearse.harness import notes
    from nb2ddp.rehearse.harness import watch as harness

    notes.FOLDER, notes.RANK = watch, rank  # the server's environment says nothing of them
    os.environ[notes.OWNER] = str(os.getpid())
    harness.watch_steps(torch)
    out = sys.stdout
    printed = os.open(Path(watch) / f"printed-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    write = out.write

    def note_and_write(text: str) -> int:
        os.write(printed, text.encode(errors="replace"))
        return write(text)

    out.write = note_and_write  # type: ignore[method-assign]


def _launch(job: dict[str, Any]) -> dict[str, Any]:
    """Fork the ranks and wait for them; after a failure they have ``grace`` seconds to end on their own."""
    # Held until the store has it: a job that took the port meanwhile would get these ranks, and they would be orphans.
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    attempts = []
    for attempt in range(job["attempts"]):
        job["attempt"] = attempt
        ranks = {}
        for rank in range(max(job["ranks"], 1)):
            pid = os.fork()
            if pid == 0:
                try:
                    _end_with_parent()
                    listener.close()
                    _be_rank(job, rank, port)
                except BaseException:
                    traceback.print_exc()
                os._exit(99)
            ranks[pid] = rank
        if job["ranks"] and attempt == 0:
            import torch.distributed as dist

            store = dist.TCPStore(  # noqa: F841
                "127.0.0.1",
                port,
                None,
                True,
                wait_for_workers=False,
                master_listen_fd=listener.detach(),
            )
        attempts.append(_wait(ranks, job["limit"], job["grace"]))
    return {"attempts": attempts}


def _end_with_parent() -> None:
    """Have the kernel kill this rank when its job ends, whatever ends it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def _wait(ranks: dict[int, int], limit: float, grace: float) -> dict[str, Any]:
    codes: dict[int, int] = {}
    ended: dict[int, float] = {}
    start = time.monotonic()
    failed = None
    while len(codes) < len(ranks):
        pid, status = os.waitpid(-1, os.WNOHANG)
        now = time.monotonic()
        if pid in ranks:
            codes[ranks[pid]] = os.waitstatus_to_exitcode(status)
            ended[ranks[pid]] = now - start
            if codes[ranks[pid]] and failed is None:
                failed = now
            continue
        if now - start > limit or (failed is not None and now - failed > grace):
            for pid, rank in ranks.items():
                if rank not in codes:
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return {"codes": codes, "ended": ended, "hung": time.monotonic() - start > limit}


def _run_job(job: dict[str, Any]) -> None:
    answer = {"id": job["id"], **_launch(job)}
    os.write(1, (json.dumps(answer) + "\n").encode())
    os._exit(0)


def _make_forks_cheap() -> None:
    """Keep what is loaded shared with the forked ranks, in huge pages where Linux has them.

    Neither a collection nor the end of a rank touches the loaded objects. A fork copies the table of the pages, and
    with huge ones that takes a third of the time.
    """
    gc.collect()
    gc.freeze()
    for finalizer in weakref.finalize._registry:  # type: ignore[attr-defined]  # torch has one for each operator
        finalizer.atexit = False
    if sys.platform != "linux":
        return
    huge, collapse, c = 2 << 20, 25, ctypes.CDLL(None)  # MADV_COLLAPSE; an error leaves a page as it is
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, _, _, _, *name = line.split()
        if access == "rw-p" and name in ([], ["[heap]"]):
            start, end = (int(address, 16) for address in addresses.split("-"))
            for page in range(-(-start // huge) * huge, end - huge + 1, huge):
                c.madvise(ctypes.c_void_p(page), ctypes.c_size_t(huge), collapse)


@contextlib.contextmanager
def _imports() -> Iterator[None]:
    """Import in this block what ranks share; what a module prints meanwhile is no answer."""
    answers = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(answers, 1)
        os.close(
            answers
        )  # a process that a script leaves behind would hold it, and `close` would wait for it
    _make_forks_cheap()


def _import_trainers() -> None:
    """Import what scripts with a Trainer use. It takes longer than all else, and many tests do without."""
    import transformers

    for name in ("Seq2SeqTrainer", "TrainingArguments", "LlamaForCausalLM", "BertForTokenClassification"):
        getattr(transformers, name)


def serve(modules: list[str]) -> None:
    """Read jobs until stdin ends."""
    for name in os.environ.get("NB2DDP_WITHOUT", "").split():
        sys.modules[name] = None  # type: ignore[assignment]  # as if it were not installed
    with _imports():
        for name in modules:
            importlib.import_module(name)
        import torch._dynamo  # DDP looks into it
        import torch.distributed.elastic.multiprocessing.errors
        import torch.utils.serialization.config
        from torch.nn.parallel import DistributedDataParallel  # noqa: F401

        torch.set_num_threads(1)
        with contextlib.suppress(ImportError):  # each rank but the first would import it by itself
            import lightning_utilities.core.rank_zero  # noqa: F401
        if with_trainers := "transformers" in sys.modules:
            _import_trainers()
    os.write(1, b"ready\n")
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for line in sys.stdin:
        job = json.loads(line)
        if not with_trainers and b"transformers" in (Path(job["folder"]) / "script.py").read_bytes():
            with_trainers = True
            with _imports():
                _import_trainers()
        if os.fork() == 0:
            os.close(0)
            os.open(os.devnull, os.O_RDONLY)
            _run_job(job)
        while True:  # reap what has ended
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break


if __name__ == "__main__":
    __name__ = "rank_server"  # a forked script is the only "__main__": its frames are told by that name
    serve(sys.argv[1:])
