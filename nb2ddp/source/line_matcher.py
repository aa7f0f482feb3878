"""Compare lists of lines in time that grows with their number; difflib's grows with its square, and faster."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

_FEW = 400  # lines of both sides, up to which difflib finds the nicest match
_WIDTHS = (1, 4, 16)  # lines that are unique together
_LEVELS = 8  # of lines that are unique between lines that are
_NEAR = 16  # lines of both sides that are looked at for two that are equal


class LineMatcher(difflib.SequenceMatcher[str]):
    """What difflib's matcher is, for lines; between many lines those that are unique are matched first."""

    def __init__(self, before: Sequence[str], after: Sequence[str]) -> None:
        super().__init__(None, before, after, autojunk=False)
        self._before, self._after = before, after

    def get_matching_blocks(self) -> list[difflib.Match]:
        """Return the blocks of equal lines, and an empty one at the end."""
        blocks: list[difflib.Match] = []
        for a, b, size in self._blocks(0, len(self._before), 0, len(self._after), _LEVELS):
            if blocks and (blocks[-1].a + blocks[-1].size, blocks[-1].b + blocks[-1].size) == (a, b):
                first = blocks.pop()
                a, b, size = first.a, first.b, first.size + size
            blocks.append(difflib.Match(a, b, size))
        return [*blocks, difflib.Match(len(self._before), len(self._after), 0)]

    def _blocks(self, a: int, a_end: int, b: int, b_end: int, levels: int) -> Iterator[tuple[int, int, int]]:
        before, after = self._before, self._after
        if a_end - a + b_end - b <= _FEW:
            matcher = difflib.SequenceMatcher(None, before[a:a_end], after[b:b_end], autojunk=False)
            yield from ((a + x, b + y, size) for x, y, size in matcher.get_matching_blocks() if size)
            return
        while a < a_end and b < b_end and before[a] == after[b]:
            yield a, b, 1
            a, b = a + 1, b + 1
        last_a, last_b = a_end, b_end
        while a < a_end and b < b_end and before[a_end - 1] == after[b_end - 1]:
            a_end, b_end = a_end - 1, b_end - 1
        tries = (self._anchors(a, a_end, b, b_end, width) for width in (_WIDTHS if levels else ()))
        anchors = next(filter(None, tries), None)
        if anchors:
            for x, y in [*anchors, (a_end, b_end)]:
                yield from self._blocks(a, x, b, y, levels - 1)
                if x < a_end:
                    yield x, y, 1
                a, b = x + 1, y + 1
        else:
            yield from self._nearest(a, a_end, b, b_end)
        if a_end < last_a:
            yield a_end, b_end, last_b - b_end

    def _anchors(self, a: int, a_end: int, b: int, b_end: int, width: int) -> list[tuple[int, int]]:
        """Return the lines that stand once on each side, as many as keep their order.

        width: lines that are taken together, from each line on.
        """
        before = [tuple(self._before[n : n + width]) for n in range(a, a_end - width + 1)]
        after = [tuple(self._after[n : n + width]) for n in range(b, b_end - width + 1)]
        counts = Counter(before), Counter(after)
        at = {lines: n for n, lines in enumerate(after, b) if counts[1][lines] == 1}
        pairs = [(n, at[lines]) for n, lines in enumerate(before, a) if counts[0][lines] == 1 and lines in at]
        ends: list[int] = []  # the line of the right side that ends the best run of each length
        runs: list[Any] = []  # those runs: the last pair, and the run before it
        for pair in pairs:
            length = bisect_left(ends, pair[1])
            ends[length : length + 1] = [pair[1]]
            runs[length : length + 1] = [(pair, runs[length - 1] if length else None)]
        chain: list[tuple[int, int]] = []
        run = runs[-1] if runs else None
        while run is not None:
            chain.append(run[0])
            run = run[1]
        return chain[::-1]

    def _nearest(self, a: int, a_end: int, b: int, b_end: int) -> Iterator[tuple[int, int, int]]:
        """Match each line with the next equal one that is near."""
        before, after = self._before, self._after
        while a < a_end and b < b_end:
            for far in range(_NEAR):
                steps = [(x, far - x) for x in range(far + 1) if a + x < a_end and b + far - x < b_end]
                found = next(((x, y) for x, y in steps if before[a + x] == after[b + y]), None)
                if found is not None:
                    a, b = a + found[0], b + found[1]
                    yield a, b, 1
                    break
            a, b = a + 1, b + 1
