"""Evaluate a time limit on rank 0 and broadcast the answer, so that all ranks go the same way.

Each process reads its own clock. A rank that stops a step before the others leaves them waiting in a collective
that it never joins; one that saves alone waits for them in vain. So it is with all that code which every rank runs asks
of its machine, another process or a thread: a file that says stop, the disk, the memory, a signal's flag.

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

import re
from collections.abc import Iterator
from functools import partial

import libcst as cst
from libcst import matchers

from nb2ddp import libraries
from nb2ddp.analysis.calls import Label
from nb2ddp.analysis.common_paths import called_by_all, changes_state
from nb2ddp.analysis.drawn_names import shared_names
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.files import looks_at_files
from nb2ddp.analysis.outside import by_clock, from_outside
from nb2ddp.options import Options
from nb2ddp.rewriting.deferring import deferring_test
from nb2ddp.rewriting.findings import Edit, Finding
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import root_of

# Statements that a test decides and that matter to the other ranks, beside calls.
_WAYS_OUT = (cst.Break, cst.Continue, cst.Return, cst.Raise)
_FLAG = matchers.Assign(value=matchers.Name("True") | matchers.Name("False"))
_COUNT = re.compile(r"(\w+) *= *\d+[ ;]*(?:#.*)?$", re.MULTILINE)
# Methods of files, queues, connections and containers that give what they give once.
_TAKING = frozenset("get get_nowait pop popleft read readline recv".split())


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    why = "the ranks go the same way here, rank 0's, whatever their clocks, files or threads say"
    for asked in facts.nodes(cst.If, cst.While):
        if facts.is_dead(asked) or facts.is_after_training(asked):
            continue
        inside = facts.around(asked, cst.While, cst.FunctionDef, cst.ClassDef)  # else file-guards sees to it
        ends = _ends_training(facts, asked) and (inside is not None or not looks_at_files(facts, asked.test))
        parts = list(_parts(facts, asked.test, from_outside if ends else by_clock))
        if not parts or not (ends or _matters(facts, asked)) or not called_by_all(facts, asked):
            continue
        for part in parts:
            if _takes(facts, part) or changes_state(facts, part) or facts.runs(part, facts.is_for_all):
                yield Edit(part, why, partial(cst_nodes.agreed, function=helper(facts, "from_main_process")))
            else:
                yield from deferring_test(facts, part, why, partial(facts.carries, label=from_outside))


def _parts(facts: Facts, test: cst.BaseExpression, label: Label) -> Iterator[cst.BaseExpression]:
    """Yield the parts of a test that may come out differently on a rank."""
    if not facts.carries(test, label):
        return
    sides = (test.left, test.right) if isinstance(test, cst.BooleanOperation) else ()
    if sides and not all(facts.carries(side, label) for side in sides):
        for side in sides:
            yield from _parts(facts, side, label)
    elif isinstance(test, cst.UnaryOperation):
        yield from _parts(facts, test.expression, label)
    else:
        yield test


def _takes(facts: Facts, part: cst.BaseExpression) -> bool:
    """Return whether a part waits for, or takes the next of what each rank has: a line, an item of a queue."""
    owners = (root_of(call.func) for call in facts.calls_in(part) if facts.method(call) in _TAKING)
    own = any(not (isinstance(owner, cst.Name) and facts.is_imported(owner.value)) for owner in owners)
    return own or bool(facts.nodes(cst.Await, within=part))


def _matters(facts: Facts, asked: cst.If | cst.While) -> bool:
    """Return whether a rank that goes another way is missed: it leaves a loop, sets a flag, or calls something."""
    if isinstance(asked, cst.While) or _leaves(facts, asked) or _sets_flag(facts, asked):
        return isinstance(asked, cst.If)  # a loop that trains is asked for before
    meets = any(facts.contains(asked, name) for name in shared_names(facts))
    below = (call for call in facts.calls_in(asked) if not facts.contains(asked.test, call))
    return meets or not all(_only_shows(facts, call) for call in below)


def _leaves(facts: Facts, asked: cst.If) -> bool:
    """Return whether a statement below a test leaves a loop, a function or the process."""
    ends = (facts.qualified(call.func) in libraries.ENDING_FUNCTIONS for call in facts.calls_in(asked))
    return bool(facts.nodes(*_WAYS_OUT, within=asked, own=True)) or any(ends)


def _sets_flag(facts: Facts, asked: cst.If) -> bool:
    """Return whether a statement below a test sets a flag, or a count that decides whether a loop goes on."""
    names = {*_COUNT.findall(cst_nodes.code_of(asked))}
    tests = (of for of in facts.nodes(cst.If, cst.While) if isinstance(of, cst.While) or _leaves(facts, of))
    read = (re.findall(r"\w+", cst_nodes.code_of(of.test)) for of in tests if names)
    return bool(matchers.findall(asked, _FLAG)) or any(not names.isdisjoint(words) for words in read)


def _ends_training(facts: Facts, asked: cst.If | cst.While) -> bool:
    """Return whether a test may end a loop that trains: by itself, or by a flag."""
    if isinstance(asked, cst.While):
        return facts.runs(asked, facts.is_training)
    sets_flag = _sets_flag(facts, asked)
    loops = facts.loops_to(asked) if sets_flag else facts.loops(asked)
    return (sets_flag or _leaves(facts, asked)) and any(facts.runs(loop, facts.is_training) for loop in loops)


def _only_shows(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call shows something, or is part of what is shown."""
    calls = (call, *(node for node in facts.parents(call) if isinstance(node, cst.Call)))
    return any(facts.shows(c) or facts.qualified(c.func) in libraries.CLOCKS for c in calls)
