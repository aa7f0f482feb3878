"""Generate run names that contain the time, a random id or that of W&B's run on rank 0, and broadcast them.

Otherwise each process gets another name: the ranks would read and write in different folders, and one rank would
look for a checkpoint that another one has.

.. code-block:: diff

     from datetime import datetime
     from trl import SFTConfig, SFTTrainer
    -run_name = f"run-{datetime.now():%Y%m%d-%H%M%S}"
    +run_name = ddp.from_main_process(lambda: f"run-{datetime.now():%Y%m%d-%H%M%S}")
     trainer = SFTTrainer(model, args=SFTConfig(output_dir=run_name))
     trainer.train()
"""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.analysis import rank_zero_work
from nb2ddp.analysis.drawn_names import shared_names
from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.deferring import deferring
from nb2ddp.rewriting.findings import Finding


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    by_one, _ = rank_zero_work.generation(facts)
    for value in shared_names(facts):
        if not any(facts.runs(statement, set(facts.calls_in(value)).__contains__) for statement in by_one):
            why = "every rank must have the same name"
            yield from deferring(facts, value, why, wanted=lambda part: any(facts.calls_in(part)))
