"""End the other ranks after the last training; rank 0 goes on alone.

Saving, exporting and inference need one process and may take long: no rank waits at a barrier meanwhile. A Trainer
whose class a loop or a table gives is not recognised: after the last training rank 0 trains it alone, which is said.

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
from nb2ddp.rewriting.findings import Decline, Finding, Insert, Note, Rule
from nb2ddp.rewriting.runtime_calls import helper

_UNNAMED = "nb2ddp cannot tell the class of this Trainer, which a loop, a table or an argument gives"
_NAME = "Make it by its class's own name, as in SFTTrainer(...), to train it on all GPUs"


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    last = facts.last_collective
    if last is None:
        yield Decline(*untrained.missing(facts))
        return
    if options.strategy == "balanced":
        return
    for call in untrained.unnamed_trainers(facts):
        if facts.is_after_training(call):
            yield Note(f"{_UNNAMED}: rank 0 trains it alone, no faster than the notebook. {_NAME}", call)
        else:
            yield Decline(f"{_UNNAMED}, so it cannot divide its training. {_NAME}", call)
    code = f"{helper(facts, 'finish')}()  # nb2ddp: only rank 0 runs what follows"
    yield Insert(last, "after", code, "the other ranks end here; rank 0 goes on alone")


rule = Rule("finish", __doc__, find, balanced=True)
