"""Run notebooks' scripts of another checkout of nb2ddp and of this one on two processes, and compare the two.

python benchmarks/releases.py CHECKOUT NOTEBOOK...

CHECKOUT is a folder with another revision (``git worktree add CHECKOUT REVISION``). For each notebook a line says how
many losses there are, the largest difference of a loss and of a parameter (0 is bit for bit), and both runs' seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.runs import Run, run

CONVERT = """
import sys
from nb2ddp import convert
result = convert(sys.argv[1])
text = result.files.get("train_ddp.py")
sys.exit("declined") if text is None else sys.stdout.write(text)
"""


def script_of(checkout: Path, notebook: Path) -> str:
    """Convert with the package in ``checkout``."""
    return subprocess.run(
        [sys.executable, "-c", CONVERT, notebook.resolve()],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def compared(old: Run, new: Run) -> str:
    """Say in one line how far two runs are apart."""
    failed = [name for name, done in (("old", old), ("new", new)) if done.exit_code]
    if failed:
        return f"{' and '.join(failed)} failed: {(new if new.exit_code else old).output[-400:]}"
    losses = [abs(a - b) for a, b in zip(old.losses(), new.losses(), strict=True)]
    before, after = old.parameters(), new.parameters()
    if before.keys() != after.keys():
        return "trains other parameters"
    parameters = max(float((before[name].double() - after[name].double()).abs().max()) for name in before)
    return (
        f"{len(losses)} losses, largest difference {max(losses):.1e}; {len(before)} parameters, "
        f"{parameters:.1e}; {old.seconds:.0f} s and {new.seconds:.0f} s"
    )


def main() -> None:
    checkout, *notebooks = (Path(argument).resolve() for argument in sys.argv[1:])
    here = Path(__file__).parents[1]
    for notebook in notebooks:
        with tempfile.TemporaryDirectory() as folder:
            runs = [
                run(Path(folder) / name / "work", script_of(root, notebook), stack="newest", nproc=2)
                for name, root in (("old", checkout), ("new", here))
            ]
            print(f"{notebook.stem}: {compared(*runs)}", flush=True)


if __name__ == "__main__":
    main()
