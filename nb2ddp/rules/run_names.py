"""Generate run names that contain the time or a random id on rank 0, and broadcast them.

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
from functools import partial

import libcst as cst

from nb2ddp.analysis import rank_zero_work
from nb2ddp.analysis.drawn_names import is_drawn_name
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.rank_tests import rank_test_above
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Edit, Finding, Rule
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes

_OPTIONS = ("output_dir", "logging_dir", "run_name", "hub_model_id")


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    if facts.last_collective is None:
        return
    for value in _values(facts):
        if facts.is_after_training(value) or not is_drawn_name(facts, value):
            continue
        if rank_test_above(facts, value) is not None:
            continue  # the other ranks do not come here
        yield Edit(
            value,
            "every rank must have the same name",
            partial(cst_nodes.deferred, function=helper(facts, "from_main_process")),
        )


def _values(facts: Facts) -> Iterator[cst.BaseExpression]:
    """Yield the values of the notebook's names, and of training arguments that are names."""
    by_one, _ = rank_zero_work.generation(facts)
    for statement in facts.top_statements:
        if isinstance(statement, cst.SimpleStatementLine) and statement not in by_one:
            for part in statement.body:
                if isinstance(part, cst.Assign) and isinstance(part.targets[0].target, cst.Name):
                    yield part.value
    for call in facts.live_calls:
        if facts.is_arguments_class(call.func):
            given = (facts.keyword(call, name) for name in _OPTIONS)
            yield from (value for value in given if value is not None)


rule = Rule("run-names", __doc__, find)
