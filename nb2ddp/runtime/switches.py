"""See what a notebook changes between a Trainer's steps: a switch may make its micro-batches compute otherwise."""

from collections.abc import Collection
from typing import Any

from nb2ddp.runtime.kept_values import _SIMPLE, _Path
from nb2ddp.runtime.run_state import _is_power_of_two
from nb2ddp.runtime.value_copies import _ABSENT


class _Switches:
    """The plain values that no micro-batch changes, and how often they were changed."""

    def __init__(self) -> None:
        self.steps, self.before = 0, dict[_Path, Any]()
        self.changes: dict[_Path, int] = {}

    def changed(self, now: dict[_Path, Any], figures: Collection[_Path]) -> bool:
        """Return whether a value is another one than in the step before: the 1st, 2nd, 4th, 8th time and so on.

        One that changes in most steps, a count of them say, counts in its 1st, 16th and 256th change. ``now`` is what
        `_Figures.snapshot` gives; ``figures`` are what micro-batches change.
        """
        before, self.steps, found = self.before, self.steps + 1, False
        self.before = {path: value for path, (at, value) in now.items() if isinstance(at.value, _SIMPLE)}
        for path, value in self.before.items() if before else ():
            old = before.get(path, _ABSENT)
            is_librarys = path[0] == "trainer" and str(path[1])[:1] == "_"
            if (type(old) is not type(value) or old != value) and path not in figures and not is_librarys:
                count = self.changes[path] = self.changes.get(path, 0) + 1
                often = 2 * count > self.steps
                found |= count in (1, 16, 256) if often else _is_power_of_two(count)
        return found
