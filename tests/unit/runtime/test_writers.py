"""What rank 0 alone writes, removes and logs by a call of its own: event files, old checkpoints, trackers' stores."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.ranks import Ended

Run = Callable[..., Ended]

WRITER = """
import os, sys, types
sys.modules["writers"] = writers = types.ModuleType("writers")
class SummaryWriter:
    def __init__(self, log_dir):
        self.log_dir, self.file = log_dir, None
        self._get_file_writer()
    def _get_file_writer(self):
        if self.file is None:
            self.file = open(f"{self.log_dir}/events.{os.getpid()}", "a")
        return self.file
    def add_scalar(self, name, value):
        self._get_file_writer().write(f"{name} {value} ")
    def add_hparams(self, values):
        SummaryWriter(self.log_dir + "/hparams").add_scalar("a", 1)
    def close(self):
        if self.file is not None:
            self.file.close()
    def __enter__(self):
        return self
    def __exit__(self, *error):
        self.close()
writers.SummaryWriter = SummaryWriter
ddp.event_writer("writers.SummaryWriter")
ddp.event_writer("not_installed.SummaryWriter")
os.makedirs("runs/hparams", exist_ok=True)
with open(f"logs{rank}.py", "w") as module:  # one of the notebook's own
    module.write("from writers import SummaryWriter\\ndef open_log(path):\\n    return SummaryWriter(path)")
sys.path.insert(0, "")
with __import__(f"logs{rank}").open_log("runs") as writer:
    writer.add_scalar("loss", 2)
    writer.add_hparams({})
    writer._get_file_writer().flush()
note(folder=writer.log_dir, is_one=isinstance(writer, SummaryWriter))
"""


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_one_rank_writes_event_files(run: Run, tmp_path: Path, ranks: int) -> None:
    ended = run(WRITER, ranks)
    assert not any(ended.codes), ended.text
    assert ended.notes == [{"folder": "runs", "is_one": True}] * ranks
    (file,) = tmp_path.rglob("runs/events.*")
    assert file.read_text() == "loss 2 "
    assert len(list(tmp_path.rglob("runs/hparams/events.*"))) == 1


OLDEST = """
import os
names = [f"{n}.txt" for n in range(4)]
ddp.init_process_group()
with ddp.in_turn():
    for name in names:
        open(name, "w").close()
with ddp.in_turn():
    ddp.on_main_process(os.remove)(names.pop(0))
note(names=names, found=sorted(name for name in os.listdir() if name in ("0.txt", *names)))
"""


LOGS = """
import io, logging.handlers, os
read = io.StringIO()
log = logging.getLogger("run")
log.setLevel(logging.INFO)
log.addHandler(logging.StreamHandler())
log.addHandler(logging.StreamHandler(read))
log.addHandler(logging.FileHandler("plain.log"))
log.addHandler(logging.handlers.RotatingFileHandler(filename="sizes.log", maxBytes=30, backupCount=2))
log.addHandler(logging.handlers.TimedRotatingFileHandler("times.log", "S", delay=True))
for step in range(3):
    log.info("step %d of the run", step)
log.warning("a warning")
logging.shutdown()
note(read=read.getvalue())
"""


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_one_rank_keeps_the_files_of_logging(run: Run, tmp_path: Path, ranks: int) -> None:
    ended = run(LOGS, ranks)
    assert not any(ended.codes), ended.text
    assert next(tmp_path.rglob("plain.log")).read_text().split("\n") == [
        *(f"step {step} of the run" for step in range(3)),
        "a warning",
        "",
    ]
    assert [rank.err.count("step 1 of the run") for rank in ended.ranks] == [1] + [0] * (ranks - 1)
    assert all(rank.err.count("a warning") == 1 for rank in ended.ranks)
    assert all(notes["read"].count("\n") == 4 for notes in ended.notes)
    assert sorted(path.name for path in tmp_path.rglob("*s.log*")) == [
        "sizes.log",
        "sizes.log.1",
        "sizes.log.2",
        "times.log",
    ]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_one_rank_removes_what_every_rank_takes_from_a_list(run: Run, ranks: int) -> None:
    ended = run(OLDEST, ranks)
    assert not any(ended.codes), ended.text
    kept = ["1.txt", "2.txt", "3.txt"]
    assert ended.notes == [{"names": kept, "found": kept}] * ranks


TRACKED = """
import contextlib, os
class Tracker:
    def __init__(self, name):
        self.file = open(f"{name}.{os.getpid()}", "w")
        self.values = {}
    def __setitem__(self, name, value):
        self.values[name] = value
    def __getitem__(self, name):
        return self.values[name]
    def logger(self):
        return self.file
    def __enter__(self):
        return self
    def __exit__(self, *error):
        pass
task = ddp.on_main_process(Tracker)("p")
task["losses"] = [1]
task["losses"].append(2)
task.logger().write("x")
task.logger().flush()
with contextlib.suppress(KeyError), task as same:
    assert same is task
    raise KeyError
note(values=len(task["losses"]), rest=list(task["losses"])[2:])
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_one_rank_opens_the_run_of_a_tracker(run: Run, tmp_path: Path, ranks: int) -> None:
    ended = run(TRACKED, ranks)
    assert not any(ended.codes), ended.text
    assert ended.notes == [{"values": 2, "rest": []}, {"values": 0, "rest": []}][:ranks]
    (file,) = tmp_path.rglob("p.*")
    assert file.read_text() == "x"


STORE = """
import os
store = ddp.tracking_uri("http://localhost:5000")
note(store=store, default=os.environ.get("MLFLOW_TRACKING_URI"))
"""


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_one_rank_logs_to_the_store_of_mlflow(run: Run, ranks: int) -> None:
    ended = run(STORE, ranks)
    assert not any(ended.codes), ended.text
    first, *others = ended.notes
    assert first == {"store": "http://localhost:5000", "default": None}
    assert all(other["store"] == other["default"] for other in others)
    assert len({other["store"] for other in others}) == len(others)
    for other in others:
        folder = Path(urllib.parse.urlsplit(other["store"]).path)
        assert not folder.parent.exists(), "it is removed at the end"


ACCELERATOR = """
import json, os
import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker
from accelerate.utils import ProjectConfiguration
class Lines(GeneralTracker):
    name, requires_logging_directory = "lines", False
    tracker = open("lines.txt", "a")
    def store_init_configuration(self, values):
        self.log(values)
    def log(self, values, step=None, **_):
        self.tracker.write(json.dumps(values) + "\\n")
    def finish(self):
        self.tracker.close()
numbered = ProjectConfiguration("project", automatic_checkpoint_naming=True, total_limit=2)
accelerator = ddp.as_one_process(lambda: Accelerator(cpu=True, log_with=Lines(), project_config=numbered))
accelerator.init_trackers("run", config={"lr": 1})
model = accelerator.prepare(torch.nn.Linear(2, 2))
saved = []
for number in range(3):
    model.weight.data.fill_(number)
    saved.append(str(accelerator.save_state()))
    accelerator.log({"number": number})
accelerator.load_state("project/checkpoints/checkpoint_1")
accelerator.save_model(model, "whole")
accelerator.save({"a": 1}, "some.pt")
accelerator.get_tracker("lines").log({"own": 1})
inner = accelerator.get_tracker("lines", unwrap=True)
inner.write("".join(["inner\\n"]))
print(len(vars(accelerator.get_tracker("lines"))), inner.fileno() is None, bool(inner))
accelerator.end_training()
note(saved=saved, weight=model.weight[0, 0].item(), there=sorted(os.listdir("project/checkpoints")),
     files=[os.path.exists(name) for name in ("whole/model.safetensors", "some.pt")])
"""


@pytest.mark.parametrize("ranks", [0, 2])
def test_an_accelerator_saves_and_logs_once(run: Run, ranks: int) -> None:
    ended = run(ACCELERATOR, ranks)
    assert not any(ended.codes), ended.text
    for notes in ended.notes:
        assert notes["saved"] == ended.notes[0]["saved"] != ["None"] * 3
        assert notes["weight"] == 1
        assert notes["there"] == ["checkpoint_1", "checkpoint_2"]
        assert notes["files"] == [True, True]
    lines = (ended.folder / "lines.txt").read_text().splitlines()
    assert lines == ['{"lr": 1}', '{"number": 0}', '{"number": 1}', '{"number": 2}', '{"own": 1}', "inner"]
