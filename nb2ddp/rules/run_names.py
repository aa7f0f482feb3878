"""Make texts with the time in them, and ids, on rank 0, and broadcast them; so are the name and the id of W&B's run.

Otherwise each process has other ones, and where they name a run's folder or file, the ranks would read and write in
different folders, and one rank would look for a checkpoint that another one has.

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

import libcst as cst

from nb2ddp.analysis import modules, rank_zero_work
from nb2ddp.analysis.drawn_names import shared_names
from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.deferring import deferring
from nb2ddp.rewriting.findings import Finding, Note
from nb2ddp.source.cells import imported_modules

_OF_MODULE = (
    "makes a name of the time or an id while it is imported, each rank another one: make it in the notebook"
)


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    by_one, _ = rank_zero_work.generation(facts)
    for value in shared_names(facts):
        lines = [call for call in facts.parents(value) if isinstance(facts.parent(call), cst.Expr)]
        alone = any(facts.runs(statement, set(facts.calls_in(value)).__contains__) for statement in by_one)
        alone |= any(isinstance(c, cst.Call) and bool(rank_zero_work.why_alone(facts, c)) for c in lines)
        if not alone:
            why = "all ranks have rank 0's, of which a name may be made"
            yield from deferring(facts, value, why, wanted=lambda part: any(facts.calls_in(part)))
    for node in facts.nodes(cst.Import, cst.ImportFrom):
        for name in imported_modules(node) if not facts.is_after_training(node) else ():
            own = facts.once(modules.reader)(name.lstrip("."))
            if own is not None and any(own.scope(value) is None for value in shared_names(own)):
                yield Note(f"the module {name} {_OF_MODULE}, or in a function that it calls", node)
