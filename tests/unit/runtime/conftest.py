from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ranks import Ended, RankServer

# What two ranks show, three show too, and what does not divide by them: two are for `make test-all`.
RANK_COUNTS = [pytest.param(2, marks=pytest.mark.thorough), 3]
START = "import ddp_support as ddp\nrank, local_rank, world_size = ddp.init(seed=0)\n"


@pytest.fixture(scope="session")
def server() -> Iterator[RankServer]:
    pytest.importorskip("torch")
    server = RankServer()
    yield server
    server.close()


@pytest.fixture
def trainers(server: RankServer) -> RankServer:
    pytest.importorskip("transformers")
    return server


@pytest.fixture
def run(server: RankServer, tmp_path: Path) -> Callable[..., Ended]:
    """Run a script, after ``ddp.init()``, on some ranks."""

    def run_script(script: str, ranks: int = 2, start: str = START, **options: Any) -> Ended:
        return server.run(tmp_path / f"run-{ranks}", start + _plain(script), ranks, **options)

    return run_script


def _plain(script: str) -> str:
    import textwrap

    return textwrap.dedent(script)
