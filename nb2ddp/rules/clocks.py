"""Evaluate a time limit on rank 0 and broadcast the answer, so that all ranks stop at the same step.

Each process reads its own clock. A rank that stops a step before the others leaves them waiting in a collective
that it never joins. So it is with all that a loop asks of its machine, another process or a thread: a file that says
stop, the disk, the memory, a signal's flag.

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

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import libcst as cst
from libcst import matchers

from nb2ddp import libraries
from nb2ddp.analysis.clock_readings import answers_by_clock, tells_time
from nb2ddp.analysis.common_paths import changes_state
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.outside import from_outside
from nb2ddp.analysis.ranks import rank_test_above, side
from nb2ddp.options import Options
from nb2ddp.rewriting.deferring import deferring
from nb2ddp.rewriting.findings import Edit, Finding, Rule
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Scope

_Flag = tuple[str, Scope | None]


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    if facts.last_collective is None:
        return
    function = helper(facts, "from_main_process")
    tests = facts.nodes(cst.If, cst.While)
    for asked in tests:
        if facts.is_dead(asked) or facts.is_after_training(asked):
            continue
        parts, why = list(_by_clock(facts, asked.test)), "the ranks stop together, by rank 0's clock"
        if not parts and _ends_loop(facts, asked) and _is_from_outside(facts, asked.test):
            parts, why = [asked.test], "the ranks stop together, when rank 0 does"
        if (
            not parts
            or _is_beside(facts, asked)
            or not (_stops_training(facts, asked) or _sets_flag(facts, asked, tests))
        ):
            continue
        for part in parts:
            if changes_state(facts, part) or facts.runs(part, facts.once(_needing_all)):
                yield Edit(part, why, partial(cst_nodes.agreed, function=function))
            else:
                yield from deferring(facts, part, why, function, wanted=partial(_is_asked, facts))


def _is_asked(facts: Facts, part: cst.CSTNode) -> bool:
    return tells_time(facts, part) or from_outside(facts, part)


def _ends_loop(facts: Facts, asked: cst.If | cst.While) -> bool:
    """Return whether a test stands in a loop of the notebook's own, or is one's: a callback's flags are rank 0's."""
    return isinstance(asked, cst.While) or not matchers.findall(asked, _CONTROL)


def _is_from_outside(facts: Facts, test: cst.BaseExpression) -> bool:
    """Return whether a test may come out differently on a rank, and the rule file-guards does not see to it."""
    calls = facts.calls_in(test)
    looks = any(
        facts.qualified(call.func) in libraries.FILE_TESTS
        or facts.method(call) in libraries.FILE_TEST_METHODS
        for call in calls
    )
    return not looks and from_outside(facts, test)


def _by_clock(facts: Facts, test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the parts of a test that the clock decides."""
    if not answers_by_clock(facts, test):
        return
    if isinstance(test, cst.BooleanOperation):
        yield from _by_clock(facts, test.left)
        yield from _by_clock(facts, test.right)
    elif isinstance(test, cst.UnaryOperation):
        yield from _by_clock(facts, test.expression)
    else:
        yield test


def _needing_all(facts: Facts) -> Callable[[cst.Call], bool]:
    """Return a test of calls that every rank has to make."""
    return lambda call: facts.is_collective(call) or facts.kind(call.func) == "model"


def _training(facts: Facts) -> Callable[[cst.Call], bool]:
    return lambda call: facts.method(call) == "backward" or facts.is_collective(call)


def _stops_training(facts: Facts, asked: cst.If | cst.While) -> bool:
    """Return whether all ranks evaluate this test equally often, and it may end the training.

    A loop that waits for something else may go round more often on one rank than on another.
    """
    if rank_test_above(facts, asked) is not None or side(facts, asked.test):
        return False
    trains = facts.once(_training)
    if isinstance(asked, cst.While):
        return facts.runs(asked, trains)
    body = [asked.body] if asked.orelse is None else [asked.body, asked.orelse]
    if any(matchers.findall(part, _CONTROL) for part in body):
        return True
    if not any(
        _ends(facts, node) for part in body for node in facts.nodes(*_WAYS_OUT, within=part, own=True)
    ):
        return False
    for parent in facts.parents(asked):
        if isinstance(parent, cst.For | cst.While) and facts.runs(parent, trains):
            return True
        if isinstance(parent, cst.While | cst.FunctionDef | cst.ClassDef):
            return False
    return False


def _is_beside(facts: Facts, asked: cst.If | cst.While) -> bool:
    """Return whether a test may be made beside the training: in a function that a thread or a timer is given."""
    for parent in facts.parents(asked):
        if isinstance(parent, cst.FunctionDef):
            name = parent.name.value
            named = [a for a in facts.attributes if a.attr.value == name]
            for use in (*facts.loads_of(name), *named):
                call = facts.parent(use)
                if not isinstance(call, cst.Call) or call.func is not use:
                    return True
        elif isinstance(parent, cst.While) and not facts.runs(parent, facts.once(_training)):
            return True
    return False


def _sets_flag(facts: Facts, asked: cst.If | cst.While, tests: Sequence[cst.If | cst.While]) -> bool:
    """Return whether ``stop = True`` stands below a test, where another test of ``stop`` ends training."""
    if rank_test_above(facts, asked) is not None or side(facts, asked.test):
        return False
    targets = {
        _flag(facts, target.target)
        for assigned in matchers.findall(asked.body, _FLAG)
        if isinstance(assigned, cst.Assign)
        for target in assigned.targets
    }
    return any(
        other is not asked and targets & _read_in(facts, other.test) and _stops_training(facts, other)
        for other in tests
        if targets
    )


def _read_in(facts: Facts, test: cst.BaseExpression) -> set[_Flag]:
    return {_flag(facts, node) for node in matchers.findall(test, matchers.Name() | matchers.Attribute())}


def _flag(facts: Facts, node: cst.CSTNode) -> _Flag:
    """Return a name and where it is bound; ``.stop`` for ``self.stop``, which has another owner where it is read."""
    if isinstance(node, cst.Attribute):
        return f".{node.attr.value}", None
    binding = facts.binding(node)
    return cst_nodes.code_of(node), binding.scope if binding is not None else None


_FLAG = matchers.Assign(value=matchers.Name("True") | matchers.Name("False") | matchers.Integer())
_CONTROL = matchers.AssignTarget(
    matchers.Attribute(attr=matchers.Name(matchers.MatchIfTrue(lambda n: n in libraries.CONTROL_FLAGS)))
)


_WAYS_OUT = (cst.Break, cst.Continue, cst.Return, cst.Raise, cst.Call)


def _ends(facts: Facts, node: cst.CSTNode) -> bool:
    return not isinstance(node, cst.Call) or facts.qualified(node.func) in libraries.ENDING_FUNCTIONS


rule = Rule("clocks", __doc__, find)
