"""Give every rank rank 0's seed, where it is a time or a number that the system draws.

The ranks begin with rank 0's random generators (random, NumPy, PyTorch), so that splits and shuffles that draw from
them are the same on every rank, with a seed of the notebook's or without one. Texts hash alike on all ranks, so that a
set has one order, and what is seeded with nothing, a generator or a stream's shuffle say, draws the same on all.

.. code-block:: diff

     import random, time
     from trl import SFTTrainer
    -random.seed(time.time())
    +random.seed(ddp.from_main_process(lambda: time.time()))
     trainer = SFTTrainer(model, train_dataset=random.sample(rows, 99))
     trainer.train()
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.common_paths import called_by_all
from nb2ddp.analysis.drawn_names import shared_names
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.outside import by_clock
from nb2ddp.options import Options
from nb2ddp.rewriting.deferring import deferring
from nb2ddp.rewriting.findings import Decline, Edit, Finding


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    calls = [call for call in facts.live_calls if not facts.is_after_training(call)]
    for call in calls:
        name = facts.qualified(call.func)
        if name in libraries.SEARCHES and not _draws_alike(facts, call):
            asks = any(facts.method(c) in ("optimize", "ask") for c in calls) or "optuna" not in name
            if asks or (facts.keyword(call, "storage") and facts.switch(call, "load_if_exists") != {True}):
                why = "this search would draw other values on every rank: train with the best values, give an Optuna"
                why += " study no storage, timeout or n_jobs"
                yield Decline(f"{why}, or use a Trainer's hyperparameter_search()", call)
        yield from _of_the_moment(facts, call, name)


def _of_the_moment(facts: Facts, call: cst.Call, name: str) -> Iterator[Edit]:
    """Give every rank rank 0's seed, where it is a time, or what the system draws."""
    named = (facts.keyword(call, keyword) for keyword in ("seed", "random_state"))
    given = [value for value in named if value is not None]
    if name in libraries.SEEDING or facts.method(call) == "manual_seed":
        given += [a.value for a in call.args[:1] if a.keyword is None]
    drawn = partial(facts.carries, label=by_clock)
    for value in given:
        shared = any(facts.contains(value, name) for name in shared_names(facts))
        if drawn(value) and not shared and called_by_all(facts, call):
            yield from deferring(facts, value, "every rank must have the same seed", drawn)


def _draws_alike(facts: Facts, search: cst.Call) -> bool:
    """Return whether an Optuna study has no store that all ranks would write to, nor a clock: the run seeds it."""
    optimizes = [call for call in facts.live_calls if facts.method(call) == "optimize"]
    if "optuna" not in facts.qualified(search.func) or facts.keyword(search, "storage") is not None:
        return False
    return not any(facts.keyword(call, name) for call in optimizes for name in ("timeout", "n_jobs"))
