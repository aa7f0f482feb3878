"""What an expression is on each rank of a run, as far as torchrun and the notebook's text decide it."""

from __future__ import annotations

from typing import Any

import pytest

from nb2ddp.analysis.rank_evaluation import as_ranks, mentions_ranks
from nb2ddp.analysis.rank_values import Value
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import call_to

START = """\
import os
import torch.distributed as dist
from accelerate import Accelerator
rank = int(os.environ["RANK"])
world_size = dist.get_world_size()
"""


def values(code: str, world_size: int = 2) -> list[Value]:
    """Return what `use()` gets on each rank."""
    facts = facts_of(START, code)
    value = call_to(facts, "use(").args[0].value
    return [rank.value(value) for rank in as_ranks(facts, world_size)]


OPEN: tuple[()] = ()  # what is known of a value that may be anything


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("use(rank)", [(0,), (1,), (2,)]),
        ("use(rank == world_size - 1)", [(False,), (False,), (True,)]),
        ("use(trainer.is_world_process_zero())", [(True,), (False,), (False,)]),
        ("use(os.environ.get('LOCAL_RANK', 'a'))", [("0",), ("1",), ("2",)]),
        ("use(f'cuda:{rank}')", [("cuda:0",), ("cuda:1",), ("cuda:2",)]),
        ("use(rank == 0 and missing)", [OPEN, (False,), (False,)]),
        ("use(1 if missing else 2)", [(1, 2)] * 3),
        ("x = 1\nif rank == 2:\n    x = 2\nuse(x)", [(1,), (1,), (2,)]),
        ("def f(n):\n    if n < 1:\n        return 'a'\nuse(f(rank))", [("a",), (None,), (None,)]),
        ("settings = {}\nsettings['rank'] = rank\nuse(settings['rank'])", [(0,), (1,), (2,)]),
        ("use([4, 5, 6][rank])", [(4,), (5,), (6,)]),
    ],
)
def test_what_a_rank_gets(code: str, expected: list[tuple[Any, ...]]) -> None:
    assert [value.known for value in values(code, 3)] == [*map(tuple, expected)]


@pytest.mark.parametrize(
    ("code", "by_rank", "share"),
    [
        ("use(rank >= 0)", True, False),
        ("use(rows[rank::world_size])", True, True),
        ("use([row for row in rows if row % world_size == rank])", True, True),
        ("mine = rows.shard(world_size, rank)\nuse(mine.map(f))", True, True),
        ("use(rows[::world_size])", False, False),
        ("use(world_size)", False, False),
        ("use(missing)", False, False),
        ("x = x + 1\nuse(x)", False, False),
    ],
)
def test_what_the_rank_decides(code: str, by_rank: bool, share: bool) -> None:
    assert {(value.by_rank, value.share) for value in values(code)} == {(by_rank, share)}


def test_an_accelerator_of_the_script_sees_one_process() -> None:
    code = "accelerator = Accelerator()\nuse((accelerator.process_index, accelerator.is_main_process))"
    assert [value.known for value in values(code)] == [((0, True),)] * 2


def test_a_branch_that_a_rank_does_not_take() -> None:
    facts = facts_of(START, "use(rank == 0)")
    test = call_to(facts, "use(").args[0].value
    first, second = as_ranks(facts, 2)
    assert (first.takes(test, where=True), first.takes(test, where=False)) == (True, False)
    assert (second.takes(test, where=True), second.takes(test, where=False)) == (False, True)


@pytest.mark.parametrize(("code", "expected"), [("if local_rank == 0: pass", True), ("x.cuda(0)", False)])
def test_whether_a_notebook_speaks_of_ranks(code: str, expected: bool) -> None:
    assert mentions_ranks(facts_of(code)) == expected
