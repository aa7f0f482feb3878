"""What counting tokens gives: one process's step over that of the rank with the most, for rows of unlike length.

    python benchmarks/even.py

The columns: ``turns``, micro-batches in the notebook's order; ``dealt``, whole ones, the longest first; ``divided``,
their rows too, as the runtime plans it; ``calls``, how many of them a step then has. A call costs as much as
256 tokens, as the runtime has it on GPUs.

Lengths. The data set card of vicgalle/alpaca-gpt4 says 88,566,301 bytes for 52,002 rows, in which the column
``text`` repeats the others under the template: some 950 bytes of text a row, at 4.1 bytes a token 230 tokens.
ShareGPT: 3.2 rounds of 71.0 and 357.8 tokens (Wang et al. 2023, "How Far Can Camels Go?", table 1). The shape
is not published; it is taken as log-normal with a sigma of 0.6 (0.9 for ShareGPT), cut at the longest row
that a notebook might set.
"""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nb2ddp.runtime import step_plans
from nb2ddp.runtime.row_parts import _Rows
from nb2ddp.runtime.run_state import _run

# mean tokens of a row, sigma of their logarithm, shortest, longest
LENGTHS = {"alpaca": (230.0, 0.6, 40, 1024), "sharegpt": (3.2 * (71.0 + 357.8), 0.9, 60, 4096)}
STEPS = 60


def lengths_of(name: str, count: int) -> list[int]:
    mean, sigma, shortest, longest = LENGTHS[name]
    rng = random.Random(3407)
    mu = math.log(mean) - sigma * sigma / 2
    return [min(longest, max(shortest, round(rng.lognormvariate(mu, sigma)))) for _ in range(count)]


def batch_of(lengths: list[int], padded: bool) -> dict[str, Any]:
    if padded:
        mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
        return {"input_ids": mask, "attention_mask": mask}
    places = torch.cat([torch.arange(length) for length in lengths])[None]
    return {"input_ids": places, "position_ids": places}


def main() -> None:
    step_plans._cost_of_a_call = lambda: 256
    print(f"{'lengths':10}{'batch':>7}{'ranks':>6}{'':>14}{'turns':>7}{'dealt':>7}{'divided':>9}{'calls':>7}")
    for name in LENGTHS:
        for size, accumulation in ((2, 4), (8, 4), (8, 1)):
            for _run.world_size in (2, 4):
                for padded in (True, False):
                    found = counted(name, size, accumulation, padded)
                    form = "padded" if padded else "padding-free"
                    print(
                        f"{name:10}{size:>5}x{accumulation}{_run.world_size:>6}{form:>14}"
                        f"{found[0]:7.2f}{found[1]:7.2f}{found[2]:9.2f}{found[3]:7.1f}"
                    )


def counted(name: str, size: int, accumulation: int, padded: bool) -> tuple[float, float, float, float]:
    lengths = iter(lengths_of(name, STEPS * size * accumulation))
    one, turns, dealt, divided, calls = 0.0, 0.0, 0.0, 0.0, 0
    for _ in range(STEPS):
        batches = [_Rows(batch_of([next(lengths) for _ in range(size)], padded)) for _ in range(accumulation)]
        costs = [float(rows.cost) for rows in batches]
        of_each = [cost + step_plans._cost_of_a_call() for cost in costs]
        one += sum(of_each)
        turns += max(sum(of_each[rank :: _run.world_size]) for rank in range(_run.world_size))
        dealt += max(step_plans._assigned(costs)[1])
        plan = step_plans._planned(batches, dict(enumerate(batches)), trims=True)
        loads = [0.0] * _run.world_size
        for turn, part, rank in plan:
            rows = batches[turn]
            cost = rows.cost if part is None else rows.cost_of(part, trims=True)
            loads[rank] += cost + step_plans._cost_of_a_call()
        divided += max(loads)
        calls += len(plan)
    return one / turns, one / dealt, one / divided, calls / STEPS


if __name__ == "__main__":
    main()
