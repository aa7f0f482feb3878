"""What a failed or restarted run says: which rank, which cell and line, what to do; and what it leaves."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from nb2ddp.conversion import report
from nb2ddp.conversion.pipeline import convert_notebook
from nb2ddp.ddp_folder import write
from nb2ddp.source.notebook import Cell, Notebook
from tests.support.launches import HEAD, RECORD_QUICKLY, Project, needs_proc, project_in

pytestmark = [pytest.mark.launch, needs_proc]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with project_in(tmp_path) as project:
        yield project


@pytest.mark.thorough  # as a killed rank in test_launch.py; what is a consequence: tests/unit/launch/test_failure.py
@pytest.mark.parametrize(
    "words",
    [
        "Connection reset by peer",
        "ncclRemoteError: remote process exited",
    ],
)
def test_a_consequence_that_is_reported_first_is_not_the_cause(project: Project, words: str) -> None:
    """Rank 0 reports its lost connection a second before the kernel has ended rank 1."""
    project.write(
        f"""
ready = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ready")
if rank == 0:
    while not os.path.exists(ready):  # rank 1 ignores SIGTERM by then
        time.sleep(0.05)
    raise RuntimeError({words!r})
open(ready, "w").close()
time.sleep(1)
os.kill(os.getpid(), signal.SIGKILL)
""",
        head=RECORD_QUICKLY + HEAD + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n",
    )
    ended = project.run()
    assert ended.code == 128 + signal.SIGKILL
    assert "nb2ddp: rank 1 failed first (ended by SIGKILL" in ended.err
    assert "nb2ddp: rank 0 failed first" not in ended.err
    assert "what to do: `nb2ddp doctor`" in ended.err


def test_a_rank_that_is_killed_for_its_patience_is_not_the_cause(project: Project) -> None:
    """Rank 0's lost connection is all that is known: rank 1 was killed by the launcher after it."""
    project.write(
        """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if rank == 0:
    time.sleep(0.3)
    raise RuntimeError("Connection closed by peer")
time.sleep(999)
""",
        head=RECORD_QUICKLY + HEAD,
    )
    ended = project.run(grace=1)
    assert ended.code == 1
    assert "nb2ddp: rank 0 failed first (exit code 1): RuntimeError: Connection closed by peer" in ended.err


def test_a_rank_that_had_left_with_success_is_named(project: Project) -> None:
    project.write(
        """
if rank == 1:
    sys.exit(0)
time.sleep(1)
raise RuntimeError("Connection closed by peer")
""",
        head=RECORD_QUICKLY + HEAD,
    )
    ended = project.run()
    assert "rank 1 had ended before it, with exit code 0" in ended.err
    assert "look at the log of the rank that had ended" in ended.err


# torchrun keeps its TCPStore over attempts: without one for each attempt, the second ends at once or hangs.
RESTARTED = """
import datetime, subprocess
import torch, torch.distributed as dist
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
store = dist.distributed_c10d._get_default_store()
assert store.add("seen by this attempt", 1) <= 2, "the store is that of an earlier attempt"
value = torch.ones(1)
dist.all_reduce(value)
print(f"attempt {attempt} sums to {value.item()}")
if attempt < 2:
    sleep = "import time; time.sleep(999)"
    server = subprocess.Popen([sys.executable, "-S", "-c", sleep], start_new_session=True)
    Path(f"server.{attempt}.{rank}").write_text(str(server.pid))
else:
    def lives(pid):  # one that has ended stays in /proc until init takes its exit code
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False
    alive = [path.name for path in Path(".").glob("server.*") if lives(path.read_text())]
    print("servers of earlier attempts:", alive)
if rank == 1 - attempt % 2 and attempt < FAILURES:
    raise ValueError(f"boom {attempt}")
dist.barrier()
os._exit(0)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("failures", [2, 3])
def test_attempts_are_kept_apart(project: Project, failures: int) -> None:
    project.write(RESTARTED.replace("FAILURES", str(failures)), head=RECORD_QUICKLY + HEAD)
    ended = project.run(torchrun_options=["--max-restarts", "2"], cwd=project.folder)
    assert "nb2ddp: attempt 1 failed: rank 1 failed first (exit code 1): ValueError: boom 0" in ended.err
    assert "nb2ddp: attempt 2 failed: rank 0 failed first (exit code 1): ValueError: boom 1" in ended.err
    assert "attempt 2 sums to 2.0\nservers of earlier attempts: []\n" in ended.out
    logs = {path.relative_to(project.logs): path.read_text() for path in project.logs.glob("**/rank1.log")}
    assert len(logs) == 3
    assert logs[Path("attempt1/rank1.log")].startswith("attempt 0 sums to 2.0")
    assert logs[Path("attempt2/rank1.log")].startswith("attempt 1 sums to 2.0")
    assert logs[Path("rank1.log")].startswith("attempt 2 sums to 2.0")
    if failures == 2:
        assert ended.code == 0
        assert "nb2ddp: rank" not in ended.err
    else:
        assert ended.code == 1
        assert ended.err.count("nb2ddp: rank 1 failed first (exit code 1): ValueError: boom 2") == 1
        assert "this was attempt 3, the last; logs of the earlier ones: " in ended.err


LOOP = """\
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 4), torch.ones(8, 1)), 4)
"""
BREAKS = """\
%time x = 1
for a, b in data:
    loss = torch.nn.functional.mse_loss(model(a), b)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    import os, sys
    if (sys.stdout.name == os.devnull) is BAD:
        raise ValueError("boom")
"""


@pytest.mark.parametrize("bad", [pytest.param(0, marks=pytest.mark.thorough), 1])
def test_the_cell_and_the_line_are_named(project: Project, bad: int) -> None:
    cells = (Cell("code", LOOP, 4), Cell("code", BREAKS.replace("BAD", str(bool(bad))), 7))
    conversion = convert_notebook(Notebook(Path("n.ipynb"), cells, "python"))
    assert conversion.script is not None, conversion.declined
    write(project.folder, conversion.files, report.as_json(conversion), force=True)
    project.script = project.folder / "train_ddp.py"
    ended = project.run()
    line = conversion.script.text.split("\n").index('        raise ValueError("boom")') + 1
    said = f"nb2ddp: rank {bad} failed first (exit code 1): ValueError: boom\n"
    said += f"        at cell 7, line 9 (train_ddp.py, line {line})\n"
    assert said in ended.err
    assert "        what to do: fix cell 7, line 9 of the notebook" in ended.err
    assert ended.code == 1
    assert ended.err.count("Traceback (most recent call last)") == 1
    assert "ChildFailedError" not in ended.err
    assert "logs/rank1.log" in ended.err  # from the folder where the command was typed
    assert (project.logs / "rank1.log").is_file()
    if bad == 1:
        assert f'train_ddp.py", line {line}, in <module>  # cell 7, line 9\n' in ended.err
