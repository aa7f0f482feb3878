"""Place the init block: before the first import of a CUDA library, after the lines that set the environment.

Each process must select its GPU before anything touches CUDA; variables such as PYTORCH_CUDA_ALLOC_CONF must be
set before torch is imported at all. ``__nb2ddp_init__`` below marks the place. In the script it becomes the import
of ``ddp_support`` and ``rank, local_rank, world_size = ddp.init()``.

.. code-block:: diff

     import os
     os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    +__nb2ddp_init__
     from unsloth import FastLanguageModel
"""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.init_place import first_below, in_setup_step, is_future, touches_environment
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Drop, Finding, Insert, Need
from nb2ddp.source import cst_nodes

MARKER = "__nb2ddp_init__"


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    gone, first, sets_environment = in_setup_step(facts), first_below(facts), False
    for statement in facts.top_statements:
        if is_future(statement):
            yield Need("from __future__", cst_nodes.code_of(statement).strip())
            yield Drop(statement, "a __future__ import must be the first statement of a script")
        elif statement not in gone:
            if statement is first and sets_environment:
                yield Insert(statement, "before", MARKER, "the init block: this process's rank and GPU")
            sets_environment |= touches_environment(statement)
