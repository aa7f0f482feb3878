"""Let several users convert at once on the page of `nb2ddp web`, and measure how long each waits.

    python benchmarks/web_load.py [--users 8] [--rounds 2] [NOTEBOOK...]

Starts the page on this machine with `.venv-web`'s Gradio (`make .venv-web/.ready`). In each round every user uploads
a notebook, says that it was dropped, and waits for the result, all at once; without notebooks the samples are taken.
Prints the seconds that users waited, those of one user alone, the page's memory, and what is left on its disk.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from tests.support import SAMPLES  # noqa: E402
from tests.support.web_pages import Served, Visitor, free_port, started  # noqa: E402


def waited(visitor: Visitor, notebook: Path) -> float:
    """Convert a notebook; return the seconds.

    Raises:
        RuntimeError: there is no result.
    """
    start = time.perf_counter()
    ended, text = visitor.drop(notebook.name, notebook.read_bytes())
    if not ended or f"{notebook.stem}_ddp.zip" not in text:
        raise RuntimeError(f"{notebook.name} was not converted: {text[-500:]}")
    return time.perf_counter() - start


def memory(served: Served) -> int:
    """Return the MB of the page's process, without those that convert."""
    return int(psutil.Process(served.process.pid).memory_info().rss / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--users", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("notebooks", type=Path, nargs="*", metavar="NOTEBOOK")
    chosen = parser.parse_args()
    notebooks = chosen.notebooks or sorted(SAMPLES.glob("*.ipynb"))
    with tempfile.TemporaryDirectory() as folder:
        command = ("-m", "nb2ddp", "web", "--no-browser", "--port", str(free_port()))
        with started(Path(folder), *command) as served:
            print(f"The page: {memory(served)} MB; {chosen.users} users, {chosen.rounds} rounds", flush=True)
            alone = Visitor(served.address)
            times = [waited(alone, notebook) for notebook in notebooks[:1] * 4][1:]
            print(f"One user alone: {statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f})")
            visitors = [Visitor(served.address) for _ in range(chosen.users)]
            with ThreadPoolExecutor(chosen.users) as pool:
                for number in range(chosen.rounds):
                    mine = [notebooks[(number + place) % len(notebooks)] for place in range(chosen.users)]
                    start = time.perf_counter()
                    times = sorted(pool.map(waited, visitors, mine))
                    print(
                        f"Round {number + 1}: {statistics.median(times):.2f} s waited ({times[0]:.2f} to "
                        f"{times[-1]:.2f}), all in {time.perf_counter() - start:.2f} s, {memory(served)} MB",
                        flush=True,
                    )
            for visitor in (alone, *visitors):
                visitor.leave()
            print(f"Left on the disk: {len(served.files())} files; after all have left {memory(served)} MB")


if __name__ == "__main__":
    main()
