"""Values of the notebook's own code: where they are found, and whether a change of them is seen and undone."""

from __future__ import annotations

import array
import collections
import contextlib
import itertools
import queue
import random
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

from nb2ddp.runtime.figures import _Figures  # noqa: E402
from nb2ddp.runtime.kept_values import _Place, _walk  # noqa: E402
from nb2ddp.runtime.value_copies import _copied, _IteratorState  # noqa: E402


def numbers() -> Iterator[int]:
    number = 900
    while True:
        yield number
        number += 1


def delegated() -> Iterator[int]:
    yield from numbers()


def from_a_loader() -> Iterator[Any]:
    return iter(torch.utils.data.DataLoader(list(range(20)), batch_size=2))


class Cycle(itertools.cycle):  # type: ignore[type-arg]  # has no [] at run time
    """Holds its class, as itertools.cycle itself does from Python 3.12 on."""


def in_a_later_round(kind: Any = itertools.cycle) -> Iterator[float]:
    iterator: Iterator[float] = kind([1.0, 0.5, 2.0])
    for _ in range(4):
        next(iterator)
    return iterator


ITEMS = list(range(900, 920))
ITERATORS: dict[str, Callable[[], Iterator[Any]]] = {
    "list": lambda: iter(ITEMS),
    "reversed list": lambda: reversed(ITEMS),
    "tuple": lambda: iter((*ITEMS,)),
    "range": lambda: iter(range(900, 920)),
    "dict": lambda: iter(dict.fromkeys(ITEMS)),
    "values of a dict": lambda: iter(dict(enumerate(ITEMS)).values()),
    "set": lambda: iter(set(ITEMS)),
    "deque": lambda: iter(collections.deque(ITEMS)),
    "str": lambda: iter("abcdefgh"),
    "enumerate": lambda: enumerate(ITEMS),
    "zip": lambda: zip(ITEMS, ITEMS, strict=False),
    "map": lambda: map(str, ITEMS),
    "filter": lambda: filter(None, ITEMS),
    "chain": lambda: itertools.chain(ITEMS, ITEMS),
    "islice": lambda: itertools.islice(ITEMS, 10),
    "cycle": lambda: itertools.cycle(ITEMS),
    "cycle in a later round": in_a_later_round,
    "cycle of Python 3.12 in a later round": lambda: in_a_later_round(Cycle),
    "count": lambda: itertools.count(900),
    "accumulate": lambda: itertools.accumulate(ITEMS),
    "pairwise": lambda: itertools.pairwise(ITEMS),
    "product": lambda: itertools.product(ITEMS, repeat=2),
    "generator": numbers,
    "generator that delegates": delegated,
    "generator expression": lambda: (2 * item for item in ITEMS),
    "DataLoader": from_a_loader,
    "map over a generator": lambda: map(str, numbers()),
}


@pytest.mark.parametrize("kind", ITERATORS)
def test_an_item_that_is_taken_moves_an_iterator(kind: str) -> None:
    iterator = ITERATORS[kind]()
    for _ in range(3):
        before = _IteratorState(iterator)
        assert before == _IteratorState(iterator)
        next(iterator)
        assert before != _IteratorState(iterator), kind


def test_a_cell_that_is_written_changes_a_table() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"loss": [1.0, 2.0]})
    before = _IteratorState(table)
    assert before == _IteratorState(table)
    table.loc[0, "loss"] = 3.0
    assert before != _IteratorState(table)


def test_a_row_that_is_inserted_changes_a_database() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.execute("create table seen (count int)")
        before = _IteratorState(base)
        assert before == _IteratorState(base)
        base.execute("insert into seen values (1)")
        assert before != _IteratorState(base)
    assert before != _IteratorState(base)  # it is closed


def small(_: _Place) -> bool:
    return True


def places(holder: dict[str, Any]) -> dict[Any, _Place]:
    roots = [_Place(("the notebook", name), holder, name, value) for name, value in holder.items()]
    return {place.path: place for place in _walk(roots, small)}


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "a list": (lambda: [1, 2], lambda value: value.append(3)),
    "a long list": (lambda: list(range(1000)), lambda value: value.append(3)),
    "a dict in a list": (lambda: [{"a": 1}], lambda value: value[0].update(a=2, b=3)),
    "a dict of many": (lambda: dict.fromkeys(range(1000), 0), lambda value: value.update({5: 1})),
    "an ordered dict": (lambda: collections.OrderedDict(a=1), lambda value: value.update(b=2)),
    "a counter": (lambda: collections.Counter("aab"), lambda value: value.update("bb")),
    "a deque": (lambda: collections.deque([1, 2], maxlen=2), lambda value: value.append(3)),
    "a set": (lambda: {1}, lambda value: value.add(2)),
    "a tensor": (lambda: torch.zeros(3), lambda value: value.add_(1)),
    "an array": (lambda: numpy.zeros(3), lambda value: value.__iadd__(1)),
    "an array of Python's": (lambda: array.array("d", [1, 2]), lambda value: value.append(3)),
    "a queue": (queue.Queue, lambda value: value.put(3)),
    "PyTorch's generator": (torch.Generator, lambda value: torch.rand(2, generator=value)),
    "Python's generator": (lambda: random.Random(1), lambda value: value.random()),
    "NumPy's generator": (lambda: numpy.random.default_rng(1), lambda value: value.random()),
    "NumPy's older generator": (lambda: numpy.random.RandomState(1), lambda value: value.rand()),
}


def plain(value: Any) -> Any:
    if isinstance(value, torch.Generator | random.Random) or type(value).__module__.startswith(
        "numpy.random"
    ):
        return _copied(value)
    if isinstance(value, queue.Queue):
        return [*value.queue]
    return value.tolist() if hasattr(value, "tolist") else value


@pytest.mark.parametrize("kind", CHANGES)
def test_what_has_changed_is_put_back(kind: str) -> None:
    make, change = CHANGES[kind]
    holder = {"value": make()}
    value, figures = holder["value"], _Figures(lambda: None)
    before = {path: (place, _copied(place.value)) for path, place in places(holder).items()}
    as_it_was = str(plain(value))
    change(value)
    assert str(plain(value)) != as_it_was
    figures.now = {path: (place, _copied(place.value)) for path, place in places(holder).items()}
    figures.restore(before)
    assert holder["value"] is value
    assert str(plain(value)) == as_it_was
