"""How fast the training steps come: over the whole run, and lately."""

from __future__ import annotations

from collections import deque

_RECENT_SECONDS = 30.0


class Pace:
    """Steps per second, from (seconds, step) as they are noted."""

    def __init__(self) -> None:
        self._known: deque[tuple[float, int]] = deque()  # the first, and the recent ones
        self.first: tuple[float, int] | None = None
        self.last: tuple[float, int] | None = None

    def note(self, seconds: float, step: int) -> None:
        if self.last is not None and step < self.last[1]:  # that was another bar, or the run starts again
            self.first = self.last = None
            self._known.clear()
        if self.last is None or step > self.last[1]:
            self.last = (seconds, step)
            self.first = self.first or self.last
            self._known.append(self.last)
        while len(self._known) > 2 and self._known[0][0] < seconds - _RECENT_SECONDS:
            self._known.popleft()

    @property
    def overall(self) -> float | None:
        """Steps per second from the first step seen to the last."""
        return _rate(self.first, self.last)

    @property
    def recent(self) -> float | None:
        """The same for the last half minute."""
        return _rate(self._known[0], self._known[-1]) if self._known else None


def _rate(first: tuple[float, int] | None, last: tuple[float, int] | None) -> float | None:
    if first is None or last is None or last[0] <= first[0]:
        return None
    return (last[1] - first[1]) / (last[0] - first[0])
