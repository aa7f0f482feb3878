"""150 notebooks of the fuzzer, and 150 more in `make test-all`; `python -m benchmarks.fuzz` tries more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.unit.attack.fuzzer import mutate, outcome

SAMPLES = sorted([*(ROOT / "sample_notebooks").glob("*.ipynb"), *(ROOT / "tests/notebooks").glob("*.ipynb")])


@pytest.mark.parametrize(
    "batch", [*range(3), *(pytest.param(batch, marks=pytest.mark.thorough) for batch in range(3, 6))]
)
def test_no_notebook_is_a_fault(tmp_path: Path, batch: int) -> None:
    seen = set()
    for seed in range(50 * batch, 50 * batch + 50):
        notebook = json.loads(SAMPLES[seed % len(SAMPLES)].read_text(encoding="utf-8"))
        result = outcome(tmp_path, mutate(notebook, seed))
        assert not result.startswith("FAULT"), f"seed {seed}: {result}"
        seen.add(result)
    assert len(seen) > 1, "it finds its way into the converter, and out of it"
    assert not list(tmp_path.iterdir()), "a conversion alone writes nothing"


def test_a_mutant_depends_on_its_seed_alone() -> None:
    """And not on those before it: a fault is found again by its seed."""
    notebook: dict[str, object] = {"cells": []}

    def mutants() -> list[str]:
        return [json.dumps(mutate(notebook, seed).notebook) for seed in range(2000)]

    assert mutants() == mutants()
