"""DataLoaders whose rows the ranks read: what the script sees is one process's, or the run says that it is not."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.runtime import support_module, used_names
from tests.support.ranks import Ended, RankServer
from tests.unit.runtime.conftest import START
from tests.unit.runtime.test_parallelize import TOLERANCE, distance

# Whether something is divided is measured in a run; here it always is, so that the tests see it on any machine.
TOOLS = """
import os, random
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, default_collate
ddp._LEAST_WAIT, ddp._LEAST_SHARE, ddp._GAIN = -1.0, -1.0, 1e9
torch.manual_seed(11)
figures, read = [], os.path.abspath(f"read-{rank}")
class Rows(Dataset):
    def __init__(self, length):
        self.length = length
    def __len__(self):
        return self.length
    def __getitem__(self, number):
        with open(read, "a") as file:
            file.write(f"{number}\\n")
        return self.row(number, torch.randn(4, 4, 3, generator=torch.Generator().manual_seed(number)))
    def row(self, number, image):
        return image, number % 3
def begin():
    global net, optimizer
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    ddp.init_process_group()
    ddp.parallelize(net)
def train(images, labels):
    loss = F.cross_entropy(net(images), labels)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    return loss
def log(*values):
    drawn = [torch.rand(()).item(), random.random(), float(np.random.rand())]
    figures.append([*(float(torch.as_tensor(value).detach()) for value in values), *drawn])
def end():
    ddp.check_replicas(net)
    note(figures=figures, parameters=[p.detach() for p in net.parameters()])
begin()
"""
SCRIPT = START + TOOLS


def reads(run: Ended) -> list[int]:
    """Return how many rows each rank has read."""
    return [len((run.folder / f"read-{rank}").read_text().splitlines()) for rank, _ in enumerate(run.ranks)]


def difference(one: Ended, several: Ended) -> float:
    """Return by how much the figures of several ranks are not one process's."""
    assert one.codes == [0], one.text
    assert not any(several.codes), several.text
    assert all(notes["figures"] == several.notes[0]["figures"] for notes in several.notes)
    return max(distance(value, several.notes[0][name]) for name, value in one.notes[0].items())


BY_A_MODEL = """
frozen = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).eval()
if world_size > 1:
    ddp._Split.worth = 0.0  # else such short calls are not divided anywhere
class Features(Rows):
    def row(self, number, image):
        with torch.no_grad():
            return frozen(image), number % 3
def collate(rows):
    images, labels = default_collate(rows)
    with torch.no_grad():
        return images + frozen(images), labels
loader = DataLoader(Features(90), batch_size=8, shuffle=True, collate_fn=collate)
for epoch in range(2):
    for images, labels in loader:
        log(train(images, labels))
    with torch.no_grad():
        log(frozen(torch.ones(8, 3)).sum())
end()
"""


def test_models_that_compute_rows_are_not_divided(server: RankServer, tmp_path: Any) -> None:
    """Each rank reads other rows: the calls in it are its own."""
    one, several = server.compare(tmp_path, SCRIPT + BY_A_MODEL, 2)
    assert difference(one, several) < TOLERANCE
    assert "a check failed" not in several.text, several.text
    assert max(reads(several)) < 1.5 * 180 / 2


IN_A_THREAD = """
import queue, threading, time
class Slow(Rows):
    def row(self, number, image):
        time.sleep(0.002 * rank)  # rank 0 does not read while its model is called, rank 1 does
        return super().row(number, image)
class Ahead(DataLoader):
    def __iter__(self):
        batches, waiting = super().__iter__(), queue.Queue(2)
        def read():
            for batch in batches:
                waiting.put(batch)
            waiting.put(None)
        threading.Thread(target=read, daemon=True).start()
        return iter(waiting.get, None)
loader = Ahead(Slow(90), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(3))
for epoch in range(2):
    for images, labels in loader:
        log(train(images, labels))
end()
"""


def test_models_are_divided_while_another_thread_reads_ahead(server: RankServer, tmp_path: Any) -> None:
    one, several = server.compare(tmp_path, SCRIPT + IN_A_THREAD, 2)
    assert difference(one, several) < TOLERANCE
    assert "WARNING" not in several.text, several.text


READ_BY_ROWS = """
class Images(Rows):
    def row(self, number, image):
        turned = image.permute(2, 0, 1)  # in the order of its memory, as an image of PIL's becomes
        return {"image": turned, "array": image.numpy().transpose(2, 0, 1), "name": f"row {number}",
                "wide": image[:, 1:2], "label": number % 3, "empty": torch.empty(0, 2)}
def collate(rows):
    noise = torch.rand(()) if not NUM_WORKERS else 0.0  # drawn where the script's numbers are
    joined = default_collate(rows)
    return {**joined, "image": joined["image"] + noise, "array": [row["array"] for row in rows]}
workers = {"num_workers": NUM_WORKERS, "persistent_workers": NUM_WORKERS > 0}
loader = DataLoader(Images(90), batch_size=4, shuffle=True, collate_fn=collate, **workers)
held_out = DataLoader(Images(10), batch_size=4, num_workers=NUM_WORKERS)
for epoch in range(3):
    for number, batch in enumerate(loader):
        loss = train(batch["image"], batch["label"])
        layout = [*batch["image"].stride(), *batch["array"][-1].strides]
        log(loss, batch["image"].double().sum(), *layout, batch["array"][-1].sum(), *map(len, batch["name"]))
        if epoch == 1 and number == 13:
            break
    net.eval()
    with torch.no_grad():
        log(sum(F.cross_entropy(net(batch["image"]), batch["label"]) for batch in held_out))
    net.train()
end()
ddp.finish()
note(last=[float(batch["image"].double().sum()) for batch in loader])
"""


@pytest.mark.parametrize(
    ("workers", "ranks"),
    [(2, 2), (0, 3), *(pytest.param(*case, marks=pytest.mark.thorough) for case in ((0, 2), (2, 3)))],
)
def test_each_rank_reads_its_rows(server: RankServer, tmp_path: Any, workers: int, ranks: int) -> None:
    program = READ_BY_ROWS.replace("NUM_WORKERS", str(workers))
    one, several = server.compare(tmp_path, SCRIPT + program, ranks)
    assert one.codes == [0], one.text
    assert several.codes == [0] * ranks, several.text
    assert difference(one, several) < TOLERANCE, several.text
    assert [row[1:] for row in one.notes[0]["figures"]] == [row[1:] for row in several.notes[0]["figures"]]
    assert one.notes[0]["last"] == several.notes[0]["last"]
    assert max(reads(several)[1:]) < 0.8 * reads(one)[0], several.text
    assert "reads all rows" not in several.text
    assert "failed" not in several.text


RANDOM = """
class Random(Rows):
    def row(self, number, image):
        kept = number < FIRST
        return image if kept else image + torch.rand(()) + random.random() + float(np.random.rand()), number % 3
for number, (images, labels) in enumerate(DataLoader(Random(200), batch_size=4, num_workers=NUM_WORKERS)):
    log(train(images, labels), images.double().sum())
end()
"""


@pytest.mark.parametrize(
    ("workers", "first", "ranks"),
    [(0, 0, 2), (2, 0, 2), (2, 61, 3), pytest.param(0, 61, 2, marks=pytest.mark.thorough)],
)
def test_random_rows_are_those_of_one_process(
    server: RankServer, tmp_path: Any, workers: int, first: int, ranks: int
) -> None:
    """Rows that draw from the beginning on, and only after they have been divided."""
    program = RANDOM.replace("NUM_WORKERS", str(workers)).replace("FIRST", str(first))
    one, several = server.compare(tmp_path, SCRIPT + program, ranks)
    assert difference(one, several) < TOLERANCE, several.text
    assert [row[1:] for row in one.notes[0]["figures"]] == [row[1:] for row in several.notes[0]["figures"]]
    if workers:  # each worker on one rank, from the first row on that draws
        assert max(reads(several)) < 0.8 * reads(one)[0], several.text
        assert "reads all rows" not in several.text
    else:
        assert "every rank reads all rows of Random" in several.ranks[0].out
        assert "its rows draw random numbers" in several.ranks[0].out


def test_what_reading_changes_stays_as_in_one_process(server: RankServer, tmp_path: Any) -> None:
    """A counter, generators of its own, and what is printed: each rank reads whole batches, and the run says so."""
    program = """
    class Counts(Rows):
        calls = 0
        def row(self, number, image):
            self.calls += 1
            return image, number % 3
    class Draws(Rows):
        numbers = np.random.default_rng(3)
        def row(self, number, image):
            return image + float(self.numbers.random()), number % 3
    own = torch.Generator().manual_seed(1)
    def jitter(image):
        return image + torch.rand((), generator=own)
    class Calls(Rows):
        transforms = [jitter]
        def row(self, number, image):
            return self.transforms[0](image), number % 3
    class Prints(Rows):
        def row(self, number, image):
            print("row", number)
            return image, number % 3
    class Caches(Rows):
        def row(self, number, image):
            with ddp.main_process_only() as is_main:
                if is_main:
                    torch.save(image, f"cached-{number}")
            return image, number % 3
    def numbered():
        seen = 0
        while True:
            yield 1e-3 * seen
            seen += 1
    class Generates(Rows):
        numbers = numbered()
        def row(self, number, image):
            return image + next(self.numbers), number % 3
    class Asks(Rows):
        def row(self, number, image):
            if ddp.is_main_process:
                torch.save(image, f"cached-{number + 48}")
            return image, number % 3
    counts = Counts(48)
    for dataset in (counts, Draws(48), Calls(48), Prints(48), Generates(48), Caches(48), Asks(48)):
        for images, labels in DataLoader(dataset, batch_size=4, shuffle=True):
            log(train(images, labels), images.double().sum(), counts.calls)
    end()
    """
    one, several = server.compare(tmp_path, SCRIPT + textwrap.dedent(program), 2)
    assert difference(one, several) < TOLERANCE, several.text
    assert reads(several) == reads(one) * 2
    for name in ("Counts", "Draws", "Calls", "Prints", "Generates", "Caches", "Asks"):
        assert several.ranks[0].out.count(f"every rank reads all rows of {name}") == 1, several.text
    rows = [[line for line in run.ranks[0].out.splitlines() if "row " in line] for run in (one, several)]
    assert rows[0] == rows[1]
    assert len(list(several.folder.glob("cached-*"))) == 96


def test_rows_that_depend_on_what_nobody_sees_are_said(server: RankServer, tmp_path: Any) -> None:
    program = """
import itertools
class Hidden(Rows):
    numbers = itertools.count()
    def row(self, number, image):
        return image + 1e-3 * next(self.numbers), number % 3
for images, labels in DataLoader(Hidden(80), batch_size=4):
    log(train(images, labels), images.double().sum())
end()
"""
    one, several = server.compare(tmp_path, SCRIPT + program, 2)
    assert difference(one, several) > TOLERANCE
    said = several.ranks[0].err
    assert "Hidden: a row is not the same when it is read again" in said, several.text
    assert "Its batches may differ from one process's since" in said
    assert "1 failed" in several.ranks[0].out


@pytest.mark.parametrize("workers", [0, 2])
def test_a_row_that_cannot_be_read_ends_all_ranks(server: RankServer, tmp_path: Any, workers: int) -> None:
    """Each rank sees the exception, which one of them raised; the run ends with its traceback."""
    program = """
class Broken(Rows):
    def row(self, number, image):
        if number in (150, 151):
            raise FileNotFoundError(2, "No such file", f"{number}.jpg")
        return image, number % 3
loader = DataLoader(Broken(160), batch_size=4, num_workers=NUM_WORKERS)
for attempt in range(2):
    try:
        for images, labels in loader:
            log(train(images, labels))
    except FileNotFoundError as error:
        note(error=type(error).__name__, number=len(figures), names="150.jpg" in str(error))
for images, labels in loader:
    train(images, labels)
"""
    several = server.run(tmp_path / "run", SCRIPT + program.replace("NUM_WORKERS", str(workers)), 2)
    assert several.codes == [1, 1], several.text
    assert all(
        notes == {"error": "FileNotFoundError", "number": 74, "names": True} for notes in several.notes
    )
    assert several.text.count('raise FileNotFoundError(2, "No such file"') >= 1
    assert "150.jpg" in several.text
    assert min(reads(several)) < 3 * 0.8 * 151


def test_rows_travel_as_they_are() -> None:
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    from nb2ddp.runtime.sent_rows import _as_tensor, _of_tensor

    image = torch.arange(24.0).view(2, 4, 3)
    rows = [
        image.permute(2, 0, 1),
        image[:, 1],
        image[:, :, 1].bfloat16(),
        torch.tensor(3),
        torch.empty(0, 3),
        torch.zeros(1, 3).expand(4, 3),
        image.to_sparse(),
        numpy.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
        numpy.array(["a", "bc"]),
        ("text", None, {"a": [1.5]}, b"bytes"),
    ]
    received = _of_tensor(_as_tensor(rows))
    for sent, came in zip(rows, received, strict=True):
        assert type(sent) is type(came)
        if isinstance(sent, torch.Tensor) and not sent.is_sparse:
            as_dense = sent if sent.is_contiguous() or sent.dim() == 3 else sent.clone()
            assert (as_dense.dtype, as_dense.stride()) == (came.dtype, came.stride())
        if isinstance(sent, torch.Tensor):
            assert sent.to_dense().tolist() == came.to_dense().tolist()
        elif isinstance(sent, numpy.ndarray):
            assert (sent.tolist(), sent.strides) == (came.tolist(), came.strides)
        else:
            assert sent == came
    with pytest.raises(Exception, match="not in the CPU's memory"):
        _as_tensor([torch.empty(2, device="meta")])


def test_what_reading_may_change_is_seen() -> None:
    torch = pytest.importorskip("torch")
    import numpy

    from nb2ddp.runtime.read_rows import _Effects

    class Held:
        pass

    held: Any = Held()
    held.values, held.array, held.tensor = {"a": [1, 2]}, numpy.zeros(3), torch.zeros(3)
    held.draws = [
        random.Random(0),
        numpy.random.default_rng(0),
        torch.Generator(),
        numpy.random.RandomState(0),
        numpy.random.SeedSequence(0),
    ]
    (held.record,) = numpy.zeros(1, dtype=[("count", int)])
    changes: list[Any] = [
        lambda: held.values["a"].append(3),
        lambda: held.array.__setitem__(0, 1),
        lambda: held.tensor.add_(1),
        lambda: held.draws[0].random(),
        lambda: held.draws[1].random(),
        lambda: torch.rand(1, generator=held.draws[2]),
        lambda: held.draws[3].rand(),
        lambda: held.draws[1].spawn(1),
        lambda: held.draws[4].spawn(1),
        lambda: held.record.__setitem__("count", 1),
        lambda: setattr(held, "more", 1),
    ]
    for change in changes:
        with _Effects(held) as none:
            pass
        with _Effects(held) as some:
            change()
        assert (none.why, some.changes) == ("", True)


def test_it_travels_with_loops_that_have_a_loader() -> None:
    loop, loader = "ddp.parallelize(model)\n", "loader = DataLoader(rows, num_workers=2)"
    assert "divided_loading" in used_names(loop + loader, "ddp")
    assert "divided_loading" in used_names(loop + "loader = make_loader(Images(transform=crop))", "ddp")
    assert "divided_loading" not in used_names(loop + "loader = DataLoader(rows)", "ddp")
    assert "divided_loading" not in used_names("ddp.wrap_trainer(trainer)\n" + loader, "ddp")
    assert "class _Loading:" not in support_module(used_names(loop, "ddp"))


def test_a_worker_that_is_no_fork_does_not_run_the_script(tmp_path: Path) -> None:
    program = """
    import ddp_support as ddp
    ddp.init()
    import torch
    rows = torch.utils.data.TensorDataset(torch.arange(4))
    loader = torch.utils.data.DataLoader(rows, batch_size=2, num_workers=1, multiprocessing_context="spawn")
    print([batch.tolist() for batch, in loader])
    """
    (tmp_path / "ddp_support.py").write_text(support_module(frozenset({"init"})))
    (tmp_path / "script.py").write_text(textwrap.dedent(program))
    ended = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, text=True, capture_output=True)
    assert (ended.stdout, ended.returncode) == ("[[0, 1], [2, 3]]\n", 0), ended.stderr
