"""Evaluate a time limit on rank 0 and broadcast the answer, so that all ranks stop at the same step.

Each process reads its own clock. A rank that stops a step before the others leaves them waiting in a collective
that it never joins.

.. code-block:: diff

     import time
     from transformers import TrainerCallback
     from trl import SFTTrainer
     start = time.time()
     class Limit(TrainerCallback):
         def on_step_end(self, args, state, control, **kwargs):
    -        if time.time() - start > 3600:
    +        if ddp.from_main_process(lambda: time.time() - start > 3600):
                 control.should_training_stop = True
     trainer = SFTTrainer(model, callbacks=[Limit()])
     trainer.train()
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.rank_tests import parts_ranks, rank_test_above
from nb2ddp.options import Options
from nb2ddp.rewriting.deferring import deferring
from nb2ddp.rewriting.findings import Finding, Rule
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    if facts.last_collective is None:
        return
    seen: set[cst.BaseExpression] = set()
    for call in facts.live_calls:
        if facts.qualified(call.func) not in libraries.CLOCKS or facts.is_after_training(call):
            continue
        for reading in (call, *_kept(facts, call), *_answers(facts, call)):
            found = _asked(facts, reading)
            if found is None or found[1] in seen or not _stops_training(facts, found[0]):
                continue
            seen.add(found[1])
            why, function = "the ranks stop together, by rank 0's clock", helper(facts, "from_main_process")
            yield from deferring(facts, found[1], why, function, wanted=partial(_reads, facts))


def _reads(facts: Facts, part: cst.CSTNode) -> bool:
    return any(facts.qualified(call.func) in libraries.CLOCKS for call in facts.calls_in(part))


def _kept(facts: Facts, call: cst.Call) -> Iterator[cst.Name]:
    """Yield the reads of ``elapsed`` where ``elapsed = time.time() - start``."""
    assigned = next(
        (p for p in facts.parents(call) if isinstance(p, cst.Assign | cst.BaseCompoundStatement)), None
    )
    for target in assigned.targets if isinstance(assigned, cst.Assign) else ():
        if isinstance(target.target, cst.Name):
            for use in facts.uses(target.target.value, facts.scope(call) or facts.cell(call).module):
                if facts.order(use) > facts.order(call):
                    yield use


def _answers(facts: Facts, call: cst.Call) -> Iterator[cst.Call]:
    """Yield the calls of a function with the line ``return time.time() - start > limit``."""
    returned = next((p.value for p in facts.parents(call) if isinstance(p, cst.Return)), None)
    function = facts.scope(call)
    if isinstance(returned, cst.Comparison) and isinstance(function, cst.FunctionDef):
        yield from (other for other in facts.live_calls if function in facts.called_functions(other))


def _asked(facts: Facts, reading: cst.CSTNode) -> tuple[cst.If | cst.While, cst.BaseExpression] | None:
    """Return what has a condition that reads the clock, and the comparison that does; None if there is none."""
    inner = reading
    compared: cst.BaseExpression | None = None
    if isinstance(reading, cst.Call) and facts.qualified(reading.func) not in libraries.CLOCKS:
        compared = reading
    for parent in facts.parents(reading):
        if isinstance(parent, cst.Comparison):
            compared = parent
        if isinstance(parent, cst.If | cst.While):
            return (parent, compared) if compared is not None and inner is parent.test else None
        if isinstance(parent, cst.BaseSmallStatement | cst.Lambda | cst.BaseComp):
            return None
        inner = parent
    return None


def _stops_training(facts: Facts, asked: cst.If | cst.While) -> bool:
    """Return whether all ranks come here equally often, and training may end here, with a ``while`` that trains say.

    A loop that waits for something else may go round more often on one rank than on another.
    """

    def trains(call: cst.Call) -> bool:
        return facts.method(call) == "backward" or facts.is_collective(call)

    if rank_test_above(facts, asked) is not None or parts_ranks(facts, asked.test):
        return False
    if isinstance(asked, cst.While):
        return facts.runs(asked, trains)
    if ".should_training_stop" in cst_nodes.code_of(asked.body):
        return True
    ends = _Ends()
    asked.body.visit(ends)
    return ends.found and any(
        isinstance(p, cst.For | cst.While) and facts.runs(p, trains) for p in facts.parents(asked)
    )


class _Ends(cst.CSTVisitor):
    def __init__(self) -> None:
        self.found = False

    def on_visit(self, node: cst.CSTNode) -> bool:
        self.found |= isinstance(node, cst.Break | cst.Return | cst.Raise)
        return not isinstance(node, cst.FunctionDef | cst.ClassDef | cst.Lambda)


rule = Rule("clocks", __doc__, find)
