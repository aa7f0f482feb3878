"""Generators that nobody seeds, Python's and NumPy's, and those of environments, are the same on every rank."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.ranks import Ended

Run = Callable[..., Ended]

DRAWS = """
import random
import tempfile
import numpy as np
import torch
def draw():
    made = np.random.default_rng(), np.random.Generator(np.random.PCG64(np.random.SeedSequence()))
    numbers = [float(np.random.RandomState().rand()), random.Random().random()]
    np.random.seed()
    random.seed()
    return [int(each.integers(2**60)) for each in made] + numbers + [float(np.random.rand()), random.random()]
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return [int(np.random.default_rng().integers(2**60)), random.getrandbits(60), random.Random().getrandbits(60)]
first = draw()
with ddp.main_process_only() as is_main:
    if is_main:
        alone = draw()
with ddp.main_process_first():
    both = draw()
options = {"multiprocessing_context": "fork", "worker_init_fn": lambda _: random.seed()}
loader = torch.utils.data.DataLoader(Rows(), num_workers=2, **options)
of_workers = [int(number) for _ in range(2) for row in loader for number in row]
note(drawn=[first, both, draw()], of_workers=of_workers, path=tempfile.mktemp())
"""


@pytest.mark.parametrize("ranks", [0, 2, 3])
def test_what_nobody_seeds_draws_the_same_on_every_rank(run: Run, ranks: int) -> None:
    ended = run(DRAWS, ranks)
    assert not any(ended.codes), ended.text
    for notes in ended.notes:
        assert notes["drawn"] == ended.notes[0]["drawn"]
        assert len({number for drawn in notes["drawn"] for number in drawn}) == 18  # never the same again
        assert notes["of_workers"] == ended.notes[0]["of_workers"]
        assert len(set(notes["of_workers"])) == 24  # each worker has its own, in each epoch
    assert len({notes["path"] for notes in ended.notes}) == len(ended.notes)


STREAMS = """
import datasets
first, second = (datasets.Dataset.from_dict({"n": range(start, start + 40)}) for start in (0, 100))
stream = first.to_iterable_dataset()
mixed = [datasets.interleave_datasets(parts, probabilities=[0.5, 0.5]) for parts in ([first, second], [stream, stream])]
note(orders=[[row["n"] for row in rows][:20] for rows in (stream.shuffle(buffer_size=20), first.shuffle(), *mixed)])
"""


def test_streams_and_mixes_of_data_have_one_order(run: Run) -> None:
    ended = run(STREAMS, 2)
    assert not any(ended.codes), ended.text
    assert ended.notes[0] == ended.notes[1]
    assert ended.notes[0]["orders"][0] != list(range(20))


IN_A_THREAD = """
import queue
import random
import threading
import time
import torch
def fill(lines):
    for _ in range(4):
        time.sleep(0.02 * rank)
        lines.put(random.Random().random())
drawn = []
for _ in range(2):
    lines = queue.Queue()
    thread = threading.Thread(target=fill, args=(lines,), name="filling")
    thread.start()
    drawn += [random.Random().random() for _ in range(4)]
    drawn += [lines.get() for _ in range(4)]
    thread.join()
drawn.append(torch.seed())
drawn.append(torch.rand(1).item())
note(drawn=drawn, initial=torch.initial_seed() == drawn[-2])
"""


def test_a_thread_draws_the_same_on_every_rank_whenever_it_runs(run: Run) -> None:
    ended = run(IN_A_THREAD, 2)
    assert not any(ended.codes), ended.text
    assert ended.notes[0] == ended.notes[1]
    assert ended.notes[0]["initial"]
    assert len(set(ended.notes[0]["drawn"])) == 18
