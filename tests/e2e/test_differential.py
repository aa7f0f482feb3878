"""Programs that nobody wrote: a slice of the generated notebooks, in one process and on two ranks.

`benchmarks/differential.py` makes them and compares the runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.launch

# loops, a Trainer and Accelerate; 65 unfreezes, 82 ends with an incomplete batch of TRL's, 131 loads what it saved;
# the models of 111 and 161 compute their own loss; 305 evaluates before it trains, and its rows meet from the second
# step on
SEEDS = (305, 100257)
WITH_A_NEIGHBOUR = (6, 9, 19, 46, 65, 82, 111, 131, 161)  # most of them plain loops
SOUND = ("same", "said", "declined")  # what is not silent, not hanging and not broken
# each was a fault once, or is a way to write that was declined
PROGRAMS = sorted(path.stem for path in (ROOT / "benchmarks" / "programs").glob("*.py"))
IN_CI = (
    "loop_callbacks_by_event",
    "trainer_prepared_model",
)


@pytest.fixture(scope="module")
def judged(request: pytest.FixtureRequest) -> dict[str, str]:
    """The verdict on each seed and program that is asked for; all of them run in processes forked from one."""
    wanted = {
        str(spec.params["program"])
        for item in request.session.items
        if (spec := getattr(item, "callspec", None))
        and "program" in spec.params
        and item.path == request.path
    }
    files = [name if name.isdigit() else f"benchmarks/programs/{name}.py" for name in sorted(wanted)]
    done = subprocess.run(
        [sys.executable, "benchmarks/differential.py", "judge", *files],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if len(files) == 1:
        return {Path(files[0]).stem: json.loads(done.stdout)["key"]}
    return {line.split()[0]: line.split(" s  ", 1)[1] for line in done.stdout.splitlines()}


@pytest.mark.parametrize(
    "program",
    [
        *SEEDS,
        *(pytest.param(seed, marks=pytest.mark.thorough) for seed in WITH_A_NEIGHBOUR),
        *(pytest.param(name, marks=() if name in IN_CI else pytest.mark.thorough) for name in PROGRAMS),
    ],
)
def test_a_program_trains_the_same(program: int | str, judged: dict[str, str]) -> None:
    """`benchmarks/differential.py judge PROGRAM` shows the differences."""
    assert judged[str(program)].startswith(SOUND), judged[str(program)]


# Each could not be run once: a loader without a length, a name that is not bound, an epoch that skips all batches.
RUNNABLE = (157, 386, 982, 1067, 1716, 2616, 96297)
PLAIN = """
import sys
from differential.features import draw
from differential.verdicts import cells_of, plain_code
for seed in map(int, sys.argv[1:]):
    print("seed", seed, file=sys.stderr)
    exec(compile(plain_code(cells_of(draw(seed))), f"seed {seed}", "exec"), {"__name__": "__main__"})
"""


@pytest.mark.thorough
def test_a_generated_program_can_be_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, *map(str, RUNNABLE)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
