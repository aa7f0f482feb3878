"""What depends on a file being there is decided by rank 0 first.

``if not os.path.exists(...)`` is true for both ranks or for one, depending on who comes first. With rank 0
through before the others look, they find what it made.

.. code-block:: diff

     import os
     from trl import SFTTrainer
    -if not os.path.exists("data"):
    -    os.makedirs("data")
    +with main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    +    if not os.path.exists("data"):
    +        os.makedirs("data")
     trainer = SFTTrainer(model)
     trainer.train()
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp import knowledge
from nb2ddp.facts import Facts
from nb2ddp.rewrite import Finding, Gate, Need, Note, Options, Rule


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for statement in facts.top_statements:
        if not isinstance(statement, cst.If) or facts.last_collective is None:
            continue
        if facts.is_after_training(statement) or not _looks_at_files(facts, statement.test):
            continue
        if facts.runs(statement, facts.is_collective) or facts.runs(statement, facts.joins_group):
            yield Note(
                "whether a file is there decides over training: it must be there for all ranks or none",
                statement,
            )
            continue
        yield Need("main_process_first")
        yield Gate(statement, "main-first", "rank 0 makes the files, the others find them")


def _looks_at_files(facts: Facts, test: cst.BaseExpression) -> bool:
    return any(
        facts.qualified(call.func) in knowledge.FILE_TESTS
        or facts.method(call) in knowledge.FILE_TEST_METHODS
        for call in facts.calls_in(test)
    )


rule = Rule("file-guards", __doc__, find)
