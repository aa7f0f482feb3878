"""Tests for rank 0 are known in their common forms; whatever else depends on the rank is found as another use."""

from __future__ import annotations

import textwrap

import pytest

from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.ranks import leaving_ranks, other_uses, rank_test_above, side
from nb2ddp.source.cells import parse_cell
from nb2ddp.source.cst_nodes import code_of

START = """\
import os, sys
import torch
import torch.distributed as dist
from transformers import Trainer
from accelerate import PartialState
rank = dist.get_rank()
local_rank = dist.get_node_local_rank()
world_size = dist.get_world_size()
trainer = Trainer(model, args)
"""


TRAINING = "for x in loader:\n    loss_of(x).backward()\n    optimizer.step()\n"


def declined(code: str) -> bool:
    """Return whether code is not converted because of what it asks of ranks."""
    facts = Facts([parse_cell(1, START), parse_cell(2, textwrap.dedent(code)), parse_cell(3, TRAINING)])
    return any(True for _ in other_uses(facts))


def test_above(code: str) -> str | None:
    """Return the code of the test above `work()`."""
    facts = Facts([parse_cell(1, START), parse_cell(2, textwrap.dedent(code))])
    works = [call for call in facts.live_calls if facts.qualified(call.func) == "work"]
    assert works
    test = rank_test_above(facts, works[-1])
    return None if test is None else code_of(test)


test_above.__test__ = False  # type: ignore[attr-defined]

MAIN = [
    "rank == 0",
    "not rank",
    "not (rank != 0)",
    "rank < 1",
    "rank in (-1, 0)",
    "rank == 0 and missing",
    "missing and rank == 0",
    "True if rank == 0 else False",
    "(first := rank == 0)",
    "local_rank <= 0",
    "dist.get_rank() == 0",
    "torch.distributed.get_rank() == 0",
    "not dist.is_initialized() or dist.get_rank() == 0",
    "dist.is_initialized() and dist.get_rank() == 0",
    "(dist.get_rank() if dist.is_initialized() else 0) == 0",
    "trainer.is_world_process_zero()",
    "trainer.accelerator.is_main_process",
    "trainer.args.should_save",
    "PartialState().is_main_process",
]
PARTS = [
    "rank == 0",
    "0 == rank",
    "not rank",
    "not (rank != 0)",
    "rank",
    "rank < 1",
    "rank % 2",
    "rank % 2 == 0",
    "rank % n == 0",
    "rank // n",
    "rank & 1",
    "rank == world_size - 1",
    "rank == dist.get_world_size() - 1",
    "rank in (0,)",
    "rank in [0, 1]",
    "rank not in {0}",
    "rank == master",
    "rank + 1 == world_size",
    "rank == 5",
    "rank is 0",
    "0 < rank < 4",
    "rank == 0 and missing",
    "missing and rank == 0",
    "rank == 0 or missing",
    "(rank == 0) == wanted",
    "step % world_size == rank",
    "bool(rank)",
    "str(rank) == '0'",
    "min(rank, 1)",
    "[True, False][rank]",
    "f'{rank}' == '0'",
    "f'cuda:{local_rank}' == 'cuda:0'",
    "'cuda:' + str(local_rank) == 'cuda:0'",
    "f'{rank:02d}' == '00'",
    "'%d' % rank == '0'",
    "'%s of %s' % (rank, world_size) == '0 of 2'",
    "'{}'.format(rank) == '0'",
    "'{rank}'.format(rank=rank) == '0'",
    "'0' == str(rank).zfill(1)",
    "any([rank == 0, missing])",
    "any((missing, rank == 0))",
    "all([rank == 0, missing])",
    "not any([rank])",
    "any(rank == n for n in masters)",
    "sum([rank, 0]) == 0",
    "divmod(rank, 2)[1] == 0",
    "True if rank == 0 else False",
    "missing if rank == 0 else False",
    "(first := rank == 0)",
    "local_rank <= 0",
    "dist.get_rank() == 0",
    "torch.distributed.get_rank() == 0",
    "not dist.is_initialized() or dist.get_rank() == 0",
    "dist.is_initialized() and dist.get_rank() == 0",
    "(dist.get_rank() if dist.is_initialized() else 0) == 0",
    "trainer.is_world_process_zero()",
    "trainer.accelerator.is_main_process",
    "PartialState().is_main_process",
]
SAME = [
    "rank >= 0",
    "rank != -1",
    "rank < world_size",
    "rank is not None",
    "rank < 0",
    "rank >= 0 or missing",
    "rank != -1 and missing",
    "missing",
    "step % world_size == 0",
    "world_size > 1",
    "world_size == 1 and rank == 0",
    "'RANK' in os.environ",
    "any([rank >= 0, missing])",
    "all([rank < 0, missing])",
    "all([rank >= 0, missing])",
    "any([])",
    "all(row.ok for row in rows)",
    "'%d' % world_size == '2'",
    "'rank %d' % rank",
    "'%500000000d' % missing",
    "os.environ.get('RANK') is not None",
    "os.environ.get('RANK')",
    "os.environ.get('HOME') == '/root'",
    "dist.is_initialized()",
    "(dist.get_rank() if dist.is_initialized() else -1) != -1",
    "os.environ['RANK'] == '0'",
    "int(os.getenv('LOCAL_RANK', '0')) == 0",
    "trainer.args.process_index == 0",
    "trainer.args.local_rank in (-1, 0)",
    "PartialState().is_last_process",
    "torch.cuda.current_device() == 0",
    "model.rank == 8",
    "trainer.args.world_size == 2",
    "device_of(local_rank).type == 'cuda'",
]


@pytest.mark.parametrize("test", MAIN)
def test_a_test_for_rank_0(test: str) -> None:
    facts = Facts([parse_cell(1, START), parse_cell(2, f"if {test}:\n    work()"), parse_cell(3, TRAINING)])
    found = rank_test_above(facts, next(c for c in facts.live_calls if facts.qualified(c.func) == "work"))
    assert found is not None
    assert side(facts, found) == "main"
    assert [*other_uses(facts)] == []


@pytest.mark.parametrize("test", PARTS)
def test_a_test_that_differs_between_ranks_is_followed_or_declined(test: str) -> None:
    code = f"if {test}:\n    work()"
    assert test_above(code) is not None or declined(code)


@pytest.mark.parametrize("test", SAME)
def test_a_test_that_is_the_same_on_all_ranks(test: str) -> None:
    code = f"if {test}:\n    work()"
    assert test_above(code) is None or declined(code)


FORMS = {
    "if rank == 0:\n    work()": "rank == 0",
    "if rank:\n    pass\nelse:\n    work()": "rank",
    "while rank == 0 and more():\n    work()": "rank == 0 and more()",
    "while more() and not rank:\n    work()": "more() and not rank",
    "match rank:\n    case 0:\n        work()": "rank",
    "match rank:\n    case 0:\n        pass\n    case _:\n        work()": "rank",
    "match rank:\n    case 0 | 2:\n        work()": "rank",
    "match mode:\n    case 'a' if rank == 0:\n        work()": "mode",
    "rank == 0 and work()": "rank == 0",
    "rank != 0 or work()": "rank != 0",
    "ready and rank == 0 and work()": "ready and rank == 0",
    "work() if rank == 0 else None": "rank == 0",
    "x = [work() for i in range(3) if rank == 0]": "rank == 0",
    "for i in range(rank, 10, world_size):\n    work()": "range(rank, 10, world_size)",
    "for row in rows[rank::world_size]:\n    work()": "rows[rank::world_size]",
    "class Rows:\n    def __init__(self, x, y, r=0, n=1):\n        self.x, self.y = x[r::n], y[r::n]\n"
    "for x in DataLoader(Rows(a, b, rank, world_size)):\n    work()": "DataLoader(Rows(a, b, rank, world_size))",
    "for i in [i for i in range(9) if i % world_size == rank]:\n    work()": (
        "[i for i in range(9) if i % world_size == rank]"
    ),
    "def f():\n    if rank != 0:\n        return\n    work()\nf()": "rank != 0",
    "for x in rows:\n    if rank != 0:\n        continue\n    work()": "rank != 0",
    "for x in rows:\n    work()\n    if rank != 0:\n        break": "rank != 0",
    # names
    "is_master = rank == 0\nif is_master:\n    work()": "is_master",
    "other = not rank == 0\nif not other:\n    work()": "not other",
    "MASTER = 0\nif rank == MASTER:\n    work()": "rank == MASTER",
    "r, n = dist.get_rank(), dist.get_world_size()\nif r == 0:\n    work()": "r == 0",
    "flag = False\nif rank == 0:\n    flag = True\nif flag:\n    work()": "flag",
    "stop = False\nwhile not stop:\n    work()\n    if rank == 0:\n        stop = found()\n"
    "    if over():\n        stop = True": ("not stop"),
    "if dist.is_initialized():\n    r = dist.get_rank()\nelse:\n    r = 0\nif r == 0:\n    work()": "r == 0",
    "try:\n    r = dist.get_rank()\nexcept KeyError:\n    r = 0\nif r == 0:\n    work()": "r == 0",
    "r = 0\nif torch.cuda.is_available():\n    r = dist.get_rank()\nif not r:\n    work()": "not r",
    # functions, classes
    "def is_main():\n    return dist.get_rank() == 0\nif is_main():\n    work()": "is_main()",
    "def is_main():\n    if not dist.is_initialized():\n        return True\n    return dist.get_rank() == 0\n"
    "if is_main():\n    work()": "is_main()",
    "def setup():\n    r = dist.get_rank()\n    return r, 2\nr, n = setup()\nif r == 0:\n    work()": "r == 0",
    "def is_rank(n):\n    return rank == n\nif is_rank(0):\n    work()": "is_rank(0)",
    "def train(r):\n    if r == 0:\n        work()\ntrain(dist.get_rank())": "r == 0",
    "class Job:\n    def __init__(self):\n        self.rank = dist.get_rank()\n"
    "    def go(self):\n        if self.rank == 0:\n            work()\nJob().go()": "self.rank == 0",
    "class Job:\n    rank = dist.get_rank()\n    @property\n    def main(self):\n        return self.rank == 0\n"
    "    def go(self):\n        if self.main:\n            work()\nJob().go()": "self.main",
    "args = SimpleNamespace(local_rank=local_rank)\nif args.local_rank == 0:\n    work()": "args.local_rank == 0",
    "parser.add_argument('--local_rank', default=dist.get_rank())\nargs = parser.parse_args([])\n"
    "if args.local_rank in (-1, 0):\n    work()": "args.local_rank in (-1, 0)",
    "class Job:\n    def __init__(self, main):\n        self.main = main\n"
    "    def go(self):\n        if self.main:\n            work()\nJob(rank == 0).go()": "self.main",
    "class Job:\n    def go(self, n, main):\n        if main:\n            work()\nJob().go(1, rank == 0)": "main",
    "def f():\n    def g(main=rank == 0):\n        if main:\n            work()\n    g()\nf()": "main",
    "class Save:\n    def __call__(self, is_main_process):\n        if is_main_process:\n            work()": (
        "is_main_process"
    ),
    "cfg = {'rank': dist.get_rank()}\nif cfg['rank'] == 0:\n    work()": "cfg['rank'] == 0",
    "cfg['rank'] = dist.get_rank()\nif cfg['rank'] == 0:\n    work()": "cfg['rank'] == 0",
    "cfg = {'rank': 0}\ncfg['rank'] = rank\ncfg['lr'] = 1\nif cfg['rank'] == 0:\n    work()": "cfg['rank'] == 0",
    "cfg = {'rank': rank, 'lr': 1}\ncfg['lr'] = 2\nif cfg['rank'] == 0:\n    work()": "cfg['rank'] == 0",
    "cfg = dict(rank=rank)\ncfg['lr'] = 2\ndef f(cfg):\n    if cfg['rank'] == 0:\n        work()\nf(cfg)": (
        "cfg['rank'] == 0"
    ),
    "self.cfg['main'] = rank == 0\nif self.cfg['main']:\n    work()": "self.cfg['main']",
    "cfg['rank'], cfg['n'] = rank, world_size\nif not cfg['rank']:\n    work()": "not cfg['rank']",
}
NOT_PARTED = [
    "args = Settings({'local_rank': -1})\nif args.local_rank not in (-1, 0):\n    work()",
    "args = SimpleNamespace(local_rank=-1)\nif args.local_rank in (-1, 0):\n    work()",
    "parser.add_argument('--local-rank', default=-1)\nif parser.parse_args().local_rank == -1:\n    work()",
    "while rank >= 0 and more():\n    work()",
    "match os.environ.get('RANK'):\n    case None:\n        pass\n    case _:\n        work()",
    "for i in range(world_size):\n    work()",
    "best = [row for rank, row in enumerate(rows) if rank < 1]\nfor x in best:\n    work()",
    "device = f'cuda:{local_rank}' if torch.cuda.is_available() else 'cpu'\nif device != 'cpu':\n    work()",
    "device = 'cuda:%d' % local_rank\nif device.startswith('cuda'):\n    work()",
    "device = f'cuda:{local_rank}'\nif device.startswith('cuda'):\n    work()",
    "device = 'cuda:{}'.format(local_rank)\nif device == 'cuda:9':\n    work()",
    "device = torch.device(f'cuda:{local_rank}')\nif device.type == 'cuda':\n    work()",
    "for rank in (8, 16):\n    if rank == 8:\n        work()",
    "class Rows:\n    def __init__(self, x, r=0, n=1):\n        self.x = x[r::n]\n"
    "for x in DataLoader(Rows(a)):\n    work()",
    "def f():\n    work()\n    if rank != 0:\n        return\n    print(1)\nf()",
    "for x in rows:\n    work()\n    if rank != 0:\n        continue\n    print(1)",
    "for x in rows:\n    for y in x:\n        if rank == 0:\n            break\n    work()",
    "r = -1\nif dist.is_initialized():\n    r = dist.get_rank()\nif r != -1:\n    work()",
    "try:\n    r = dist.get_rank()\nexcept KeyError:\n    r = -1\nif r != -1:\n    work()",
    "def f(rank):\n    if rank == 8:\n        work()\nf(8)",
    "r = rank\nr = 16\nif r == 16:\n    work()",
    "cfg['rank'] = 8\nif cfg['rank'] == 8:\n    work()",
    "env['rank'] = rank\nlora['rank'] = 8\nif lora['rank'] == 8:\n    work()",
    "losses[rank] = 1\nlosses['last'] = rank\nif losses['best'] < 2:\n    work()",
    "device = '%s:%d' % ('cuda', local_rank)\nif device.startswith('cuda'):\n    work()",
    "x = x0\nx = x + 1\nif x:\n    work()",
    "model = make(rank)\nif model.training:\n    work()",
    "for x in rows:\n    if seen is None:\n        work()\n    seen = x",
]


@pytest.mark.parametrize("code", FORMS)
def test_a_form_in_which_some_ranks_do_not_come_is_followed_or_declined(code: str) -> None:
    found = test_above(code)
    assert found == FORMS[code] or (found is None and declined(code))


@pytest.mark.parametrize("code", NOT_PARTED)
def test_a_form_to_which_all_ranks_come(code: str) -> None:
    assert test_above(code) is None


LEAVING = {
    "rank == 0 or sys.exit()": "sys.exit()",
    "rank == 0 or exit()": "exit()",
    "sys.exit() if rank else None": "sys.exit()",
    "def stop():\n    sys.exit(0)\nif rank > 0:\n    stop()": "sys.exit()",
    "if rank % 2:\n    raise SystemExit": "SystemExit",
    "if rank != 0:\n    sys.exit('only the first')": "sys.exit()",
    "if rank != 0:\n    raise RuntimeError('only the first')": "RuntimeError",
    "if rank == 0 and missing:\n    sys.exit()": "sys.exit()",
    "if rank == 0 and missing:\n    sys.exit(code)": "sys.exit()",
    "if rank == 0 and missing:\n    os._exit(0)": "os._exit()",
}
ENDING = [
    "if rank == 0 and missing:\n    sys.exit('no data')",
    "if rank == 0 and missing:\n    sys.exit(f'no {data}')",
    "if rank == 0 and missing:\n    exit(1)",
    "if rank == 0 and missing:\n    quit(2)",
    "if rank == 0:\n    if missing:\n        raise SystemExit('no data')",
    "if rank == 0 and missing:\n    raise FileNotFoundError('no data')",
    "if rank == 0:\n    for file in files:\n        raise ValueError(file)",
    "if missing:\n    sys.exit()",
    "if world_size == 1:\n    sys.exit()",
]


def leaving(code: str) -> list[str]:
    facts = Facts([parse_cell(1, START), parse_cell(2, code), parse_cell(3, TRAINING)])
    return [found.how for found in leaving_ranks(facts)]


@pytest.mark.parametrize("code", LEAVING)
def test_some_ranks_leave_quietly_or_each_time(code: str) -> None:
    assert leaving(code) == [LEAVING[code]]


@pytest.mark.parametrize("code", ENDING)
def test_an_error_that_may_happen_on_one_rank_ends_the_run(code: str) -> None:
    assert leaving(code) == []


OF_ALL_RANKS = {
    "a progress bar": "if rank == 0:\n    rows = tqdm(rows)\nfor x in rows:\n    work()",
    "a loop's iterator": "it = enumerate(rows)\nif rank == 0:\n    it = tqdm(it)\nfor i, x in it:\n    work()",
    "a place for tensors": "for i in torch.arange(0, 8, device=f'cuda:{rank}'):\n    work()",
    "a field of the notebook's own": "class C:\n    is_main = True\nif C.is_main:\n    work()",
    "a column": "for row in table.itertuples():\n    if row.is_main:\n        work()",
    "a method of the notebook's own": (
        "class U:\n    def get_rank(self, x):\n        return self.ranks[x]\nif U().get_rank(3) > 1:\n    work()"
    ),
}


@pytest.mark.parametrize("code", OF_ALL_RANKS.values(), ids=OF_ALL_RANKS)
def test_what_only_looks_like_a_test_of_the_rank(code: str) -> None:
    assert test_above(code) is None


def test_a_default_says_nothing_of_what_a_library_passes() -> None:
    code = (
        "class Stop(TrainerCallback):\n    def on_step_end(self, args, state, control, model=None, **kw):\n"
        "        if model is not None and state.is_world_process_zero:\n            work()"
    )
    assert test_above(code) is not None


def test_a_call_after_training_does_not_count() -> None:
    code = "def show():\n    work()\nshow()\n" + TRAINING + "if rank == 0:\n    show()"
    assert test_above(code) is None
