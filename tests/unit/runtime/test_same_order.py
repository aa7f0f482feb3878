"""The values of a set, whose order each process has its own, in the order of rank 0."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.ranks import Ended

Run = Callable[..., Ended]

ORDERS = """
import torch
class Item:
    def __init__(self, name):
        self.name = name
class Named(Item):
    def __eq__(self, other):
        return self.name == other.name
    def __hash__(self):
        return 1
class Refused(Item):
    def __hash__(self):
        if refuses:
            raise ValueError
        return 1
def turned(values):  # as sets of strings are, in another order on each rank
    values = list(values)
    return values[rank:] + values[:rank]
refuses = False
model = torch.nn.Linear(2, 2)
words = turned(["a", "b", None, float("nan"), print])
items = turned(Named(name) for name in "abc")
own = [turned(model.parameters()), turned([torch.nn.ReLU(), ("layer", model), "x"]), turned([lambda: 1, lambda: 2])]
own += [turned(Item(name) for name in "abc"), turned(Refused(name) for name in "ab"), turned([1, 2, 3 + rank])]
own[4:5] = [{value: 1 for value in own[4]}.keys()]
refuses = rank == 1  # one rank alone cannot tell: all keep their own order
note(words=[str(word) for word in ddp.same_order(words)], items=[item.name for item in ddp.same_order(items)])
note(same=all(any(item is other for other in items) for item in ddp.same_order(items)))
note(own=[all(a is b for a, b in zip(ddp.same_order(each), each, strict=True)) for each in own])
note(after=ddp.from_all_ranks(5))
"""


@pytest.mark.parametrize("ranks", [0, 2, 3])
def test_values_get_rank_0s_order_where_they_are_the_same_on_all_ranks(run: Run, ranks: int) -> None:
    ended = run(ORDERS, ranks)
    assert not any(ended.codes), ended.text
    for notes in ended.notes:
        assert notes["words"] == ["a", "b", "None", "nan", "<built-in function print>"]
        assert notes["items"] == ["a", "b", "c"]
        assert notes["same"]
        assert notes["own"] == [True] * 6
        assert notes["after"] == [5] * max(1, ranks)
