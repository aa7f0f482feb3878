"""Prepare data on rank 0 first; the other ranks then read its cache.

The other ranks wait on torchrun's key-value store, not in a collective, so a long tokenization cannot time out.
The same block replaces the ``main_process_first()`` of an Accelerator, which sees one process in the script, and of
training arguments, whose ranks wait in a collective. Where the block looks at files, the rule file-guards decides.

.. code-block:: diff

     from datasets import load_dataset
     from trl import SFTTrainer
    -dataset = load_dataset("d", split="train")
    -dataset = dataset.map(to_text, batched=True)
    +with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    +    dataset = load_dataset("d", split="train")
    +    dataset = dataset.map(to_text, batched=True)
     trainer = SFTTrainer(model, train_dataset=dataset)
     trainer.train()
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.analysis import files
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.rank_zero_work import generated
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Edit, Finding, Gate, Rule
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source.cells import Statement

_FIRST = frozenset({"main_process_first", "local_main_process_first"})


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    waits = helper(facts, "main_process_first")
    own: set[cst.CSTNode] = set()  # statements that let rank 0 go first or alone already
    for call in facts.live_calls:
        item = facts.parent(call)
        if facts.method(call) in _FIRST and isinstance(item, cst.WithItem):
            block = facts.statement(call)
            if not files.looks_at_files(facts, block) or facts.runs(block, facts.fills_cache):
                own.add(block)
                yield Edit.to(call, "rank 0 goes first", f"{waits}()")
    own |= generated(facts)
    for statement in _statements(facts):
        if statement in own or facts.is_after_training(statement):
            continue
        if facts.runs(statement, facts.fills_cache) and not facts.runs(statement, facts.needs_all):
            yield Gate(statement, "main-first", "rank 0 prepares the data, the others read its cache")


def _statements(facts: Facts) -> Iterator[Statement]:
    """Yield the statements of the cells; for ``if __name__ == "__main__":`` those below it."""
    for statement in facts.top_statements:
        match statement:
            case cst.If(
                test=cst.Comparison(left=cst.Name(value="__name__")), body=cst.IndentedBlock(body=body)
            ):
                yield from (part for part in body if isinstance(part, Statement))
            case _:
                yield statement


rule = Rule("main-first", __doc__, find, of_training=True)
