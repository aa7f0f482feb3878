"""End the other ranks after the last training; rank 0 goes on alone.

Saving, exporting and inference need one process and may take long: no rank waits at a barrier meanwhile.

.. code-block:: diff

     from trl import SFTTrainer
     trainer = SFTTrainer(model)
     trainer.train()
    +ddp.finish()  # nb2ddp: only rank 0 runs what follows
     model.save_pretrained("lora")
"""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.analysis import untrained
from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Decline, Finding, Insert
from nb2ddp.rewriting.runtime_calls import helper


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    if (last := facts.last_collective) is None:
        yield Decline(*untrained.missing(facts))
        return
    if options.strategy == "balanced":
        return
    code = f"{helper(facts, 'finish')}()  # nb2ddp: only rank 0 runs what follows"
    yield Insert(last, "after", code, "the other ranks end here; rank 0 goes on alone")
