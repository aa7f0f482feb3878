"""Make a failing program smaller: first its features go back to the plainest ones, then statements go."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from differential.features import Features, is_seeded, plainest, settled
from differential.verdicts import Verdict, cells_of, changed, judge


def shrink_features(features: Features, key: str, folder: Path, ranks: int) -> Features:
    """The fewest features that still show the fault ``key``, found by halving and then one by one."""

    def fails(tried: Features) -> bool:
        return bool(judge(cells_of(tried), is_seeded(tried), folder, ranks).key == key)

    plain, size = plainest(features), max(len(changed(features)) // 2, 1)
    while True:
        names = list(changed(features))
        smaller = None
        for start in range(0, len(names), size):
            part = set(names[start : start + size])
            tried = settled(
                {name: plain[name] if name in part else value for name, value in features.items()}
            )
            if len(changed(tried)) < len(names) and fails(tried):
                smaller = tried
                break
        if smaller is not None:
            features = smaller
            size = max(min(size, len(changed(features)) // 2), 1)
        elif size == 1:
            return features
        else:
            size = max(size // 2, 1)


def shrink_statements(cells: list[str], fails: Callable[[list[str]], bool], budget: int = 120) -> list[str]:
    """The fewest statements that still fail: each is left out in turn, the last first, until none can be."""
    again = True
    while again and budget > 0:
        again = False
        for number in reversed(range(len(cells))):
            for smaller in list(_without_one(cells[number])):
                tried = [*cells[:number], *([smaller] if smaller.strip() else []), *cells[number + 1 :]]
                budget -= 1
                if fails(tried):
                    cells, again = tried, True
                    break
                if budget <= 0:
                    return cells
    return cells


def _without_one(cell: str) -> Iterator[str]:
    """The cell without one of its statements, for each; blocks that would be empty keep ``pass``."""
    rows = cell.split("\n")
    try:
        tree = ast.parse(cell)
    except SyntaxError:
        return
    statements = [
        node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not isinstance(node, ast.Pass)
    ]
    for node in sorted(statements, key=lambda node: (node.end_lineno or 0, -node.lineno), reverse=True):
        left = [*rows[: node.lineno - 1], *rows[node.end_lineno :]]
        for text in (
            "\n".join(left),
            "\n".join([*rows[: node.lineno - 1], " " * node.col_offset + "pass", *rows[node.end_lineno :]]),
        ):
            try:
                compile(text, "cell", "exec")
            except SyntaxError:
                continue
            yield text
            break


def shrink(features: Features, verdict: Verdict, folder: Path) -> tuple[Features, list[str]]:
    """The smallest features and cells that show the same fault."""
    small = shrink_features(features, verdict.key, folder, verdict.ranks)
    seeded = is_seeded(small)

    def fails(cells: list[str]) -> bool:
        return bool(judge(cells, seeded, folder, verdict.ranks).key == verdict.key)

    return small, shrink_statements(cells_of(small), fails)
