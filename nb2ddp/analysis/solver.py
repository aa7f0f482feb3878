"""Evaluate questions that depend on one another: each once, without recursion, cycles included."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass
class _Frame(Generic[Key, Value]):
    """One evaluation under way.

    ``lowest`` is the depth of the outermost frame whose value it had to assume; ``since`` the number of
    unsettled keys when it began.
    """

    key: Key
    steps: Generator[Key, Value, Value]
    lowest: int
    since: int


class Solver(Generic[Key, Value]):
    """Memoize ``steps``: a generator function that yields the keys that it needs and is sent their values.

    A key that is needed for its own value counts as ``empty`` there. A value that is not empty is final; an
    empty one that rests on such an assumption is kept once the assumption has proved right.
    """

    def __init__(self, steps: Callable[[Key], Generator[Key, Value, Value]], empty: Value) -> None:
        self._steps = steps
        self._empty = empty
        self._known: dict[Key, Value] = {}

    def solve(self, key: Key) -> Value:
        """Return the value of ``key``."""
        if key not in self._known:
            self._evaluate(key)
        return self._known[key]

    def _evaluate(self, key: Key) -> None:
        known = self._known
        frames = [_Frame(key, self._steps(key), 0, 0)]
        depths = {key: 0}
        unsettled: dict[Key, int] = {}  # empty as far as known, with the lowest depth that each assumes
        answer: Value | None = None
        while frames:
            frame = frames[-1]
            try:
                needed = frame.steps.send(answer)  # type: ignore[arg-type]  # None starts a generator
            except StopIteration as end:
                answer = end.value
                frames.pop()
                depth = depths.pop(frame.key)
                if not answer and frame.lowest < depth:
                    unsettled[frame.key] = frame.lowest
                    frames[-1].lowest = min(frames[-1].lowest, frame.lowest)
                    continue
                known[frame.key] = end.value
                while len(unsettled) > frame.since:
                    settled, _ = unsettled.popitem()  # the last that was added
                    if not answer:
                        known[settled] = end.value
                continue
            if needed in known:
                answer = known[needed]
            elif needed in depths or needed in unsettled:
                frame.lowest = min(frame.lowest, depths.get(needed, unsettled.get(needed, 0)))
                answer = self._empty
            else:
                depths[needed] = len(frames)
                frames.append(_Frame(needed, self._steps(needed), len(frames), len(unsettled)))
                answer = None


def search(found: Callable[[Key], bool | None], leads: Callable[[Key], Iterable[Key]]) -> Solver[Key, bool]:
    """Return what tells whether a key, or one that it ``leads`` to, is ``found``; where that is None, look further."""

    def steps(key: Key) -> Generator[Key, bool, bool]:
        known = found(key)
        for other in leads(key) if known is None else ():
            if (yield other):
                return True
        return bool(known)

    return Solver(steps, False)
