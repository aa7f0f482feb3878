"""How the tests are spread over two workers: runs of training processes come one after another."""

from __future__ import annotations

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests that start processes are one group, because they need the cores; else each file is one."""
    launches = item.get_closest_marker("launch") is not None
    item.add_marker(pytest.mark.xdist_group("launch" if launches else item.path.stem))
