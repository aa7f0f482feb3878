"""Compare lists of lines in time that grows with their number; difflib's grows with its square, and faster."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Any

_FEW = 400  # lines of both sides, up to which difflib finds the nicest match
_WIDTHS = (4, 1)  # lines that are unique together


class LineMatcher(difflib.SequenceMatcher[str]):
    """What difflib's matcher is, for lines; between many lines those that are unique are matched first."""

    def __init__(self, before: Sequence[str], after: Sequence[str]) -> None:
        super().__init__(None, before, after, autojunk=False)
        self._before, self._after = before, after

    def get_matching_blocks(self) -> list[difflib.Match]:
        """Return the blocks of equal lines, and an empty one at the end."""
        before, after = self._before, self._after
        if len(before) + len(after) <= _FEW:
            return super().get_matching_blocks()
        end = len(before), len(after)
        anchors = self._anchors(_WIDTHS[0]) or self._anchors(_WIDTHS[1])
        blocks: list[difflib.Match] = []
        a = b = 0
        for x, y in [(0, 0), *anchors, end]:
            if x < a or y < b:  # within the last block
                continue
            while x > a and y > b and before[x - 1] == after[y - 1]:
                x, y = x - 1, y - 1
            if x - a + y - b <= _FEW:
                between = difflib.SequenceMatcher(None, before[a:x], after[b:y], autojunk=False)
                blocks += [difflib.Match(a + i, b + j, size) for i, j, size in between.get_matching_blocks()]
            a, b = x, y
            while (a, b) != end and before[a : a + 1] == after[b : b + 1]:
                a, b = a + 1, b + 1
            blocks.append(difflib.Match(x, y, a - x))
        return [*(block for block in blocks if block.size), difflib.Match(*end, 0)]

    def _anchors(self, width: int) -> list[tuple[int, int]]:
        """Return the lines that stand once on each side, as many as keep their order.

        width: lines that are taken together, from each line on.
        """
        before, after = (
            [tuple(side[n : n + width]) for n in range(len(side) - width + 1)]
            for side in (self._before, self._after)
        )
        counts = Counter(before), Counter(after)
        at = {lines: n for n, lines in enumerate(after) if counts[1][lines] == 1}
        pairs = [(n, at[lines]) for n, lines in enumerate(before) if counts[0][lines] == 1 and lines in at]
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
