"""Join the process group after the model is loaded, before the ranks first need one another.

Unsloth compiles while it is imported and while it loads a model; with a process group alive it uses
collectives there, which raised or hung in versions up to 2026.8. Accelerate, which training arguments start,
would join with a timeout of its own.

Declined is what a test of the rank in the notebook keeps from some ranks and all of them need: the training, a
gather, a step of the optimizer, a call of the model with gradients, the end of the script. So is any other use of the
rank or of the number of ranks than a test for rank 0 or a choice of the device.

.. code-block:: diff

     from unsloth import FastLanguageModel
     from trl import SFTConfig, SFTTrainer
     model, tokenizer = FastLanguageModel.from_pretrained("m")
     model = FastLanguageModel.get_peft_model(model, r=16)
    +ddp.init_process_group()  # nb2ddp: join the process group
     trainer = SFTTrainer(model, args=SFTConfig("out"))
     trainer.train()
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.ranks import leaving_ranks, other_uses, rank_test_above, speaks_of_ranks
from nb2ddp.analysis.training_arguments import libraries_know_ranks
from nb2ddp.analysis.training_loops import given_models, optimizers, without_gradients
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Decline, Finding, Insert, Note, Rule
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    place = _place(facts)
    if place is None:
        return
    statement, where = place
    code = f"{helper(facts, 'init_process_group')}()  # nb2ddp: join the process group"
    why = (
        "after loading, before anything that needs the other ranks"
        if where == "after"
        else "before it needs the other ranks"
    )
    yield Insert(statement, "after" if where == "after" else "before", code, f"join the process group {why}")
    told: set[cst.CSTNode] = set()
    for leaving in leaving_ranks(facts):
        told.add(leaving.test)
        code = cst_nodes.one_line(leaving.test)
        yield Decline(
            f"`{code}` lets some ranks leave here ({leaving.how}), and the others would wait for them where they "
            "train together; take the condition away, since the script prints and saves on rank 0 by itself",
            leaving.test,
        )
    yield from _gated(facts, told)
    yield from _declined(facts, told)
    for use in other_uses(facts, keeps_variables=libraries_know_ranks(facts, options.strategy)):
        if any(facts.contains(test, use.node) for test in told):
            continue
        yield Decline(
            f"`{cst_nodes.one_line(use.node)}` asks for {use.of}; nb2ddp converts what one process does, divides its "
            "batches and lets rank 0 write by itself. Write what one process has here, or start this code with "
            "torchrun as it is",
            use.node,
        )
    for call in facts.live_calls:
        engine = facts.keyword(call, "fast_inference")
        if engine is not None and cst_nodes.code_of(engine) not in ("False", "None"):
            yield Note(
                "each rank starts a vLLM engine on its own GPU with the memory share given here; that needs "
                "unsloth_zoo 2026.10.9 or newer. If it does not fit, set fast_inference=False: then no vLLM is started",
                call,
            )


def _gated(facts: Facts, told: set[cst.CSTNode]) -> Iterator[Finding]:
    """Decline what all ranks do together where a test of the notebook's lets some of them come alone."""
    for call in facts.live_calls:
        if not facts.is_collective(call) or facts.is_after_training(call):
            continue
        method = (
            call.func.attr.value if isinstance(call.func, cst.Attribute) else cst_nodes.code_of(call.func)
        )
        asked = isinstance(call.func, cst.Attribute) and facts.kind(call.func.value) == "accelerator"
        if asked and method != "backward":
            continue
        test = rank_test_above(facts, call)
        if test is not None and test not in told:
            told.add(test)
            yield _apart(facts, test, method)


def _declined(facts: Facts, told: set[cst.CSTNode]) -> Iterator[Finding]:
    """Decline what changes the training of some ranks alone, where nothing else is said of the test above it."""
    for found in one_sided(facts):
        if found.test in told:
            continue
        told.add(found.test)
        test = cst_nodes.one_line(found.test)
        code = cst_nodes.one_line(found.node)
        if found.kind == "step":
            yield Decline(
                f"`{test}` lets some ranks alone call `{code}`, and the ranks would train different models; take the "
                "condition away",
                found.node,
            )
        elif found.kind == "forward":
            yield Decline(
                f"`{test}` lets some ranks alone call `{code}`, which all ranks compute together where gradients are "
                "kept; put it below `with torch.no_grad():`, or take the condition away",
                found.node,
            )
        else:
            yield Decline(
                f"`{test}` lets some ranks alone set `{code}`, and the others would wait for them; take the condition "
                "away, since each rank knows the same state",
                found.node,
            )


def _apart(facts: Facts, test: cst.BaseExpression, method: str) -> Decline:
    """Say what lets only some ranks reach a call: the condition of a loop, or a test."""
    code = cst_nodes.one_line(test)
    around = facts.parent(test)
    if isinstance(around, cst.While):
        return Decline(
            f"`{code}` may end this loop on some ranks alone, and the others would wait for them in {method}(); let "
            "all ranks compute it alike, since each has the same model and the same losses",
            test,
        )
    return Decline(
        f"`{code}` lets only some ranks reach {method}(), and they would wait for the others there; take the "
        "condition away, since the script prints and saves on rank 0 by itself",
        test,
    )


def _place(facts: Facts) -> tuple[Statement, str] | None:
    def loads(call: cst.Call) -> bool:
        return facts.loads_model(call) and not facts.is_after_training(call)

    first = next((s for s in facts.top_statements if facts.runs(s, facts.needs_all)), None)
    if first is None:
        return None
    loading = [
        s for s in facts.top_statements if facts.order(s) < facts.order(first) and facts.runs(s, loads)
    ]
    if not facts.runs(first, loads):
        return (loading[-1], "after") if loading else (first, "before")
    # One statement loads and trains: mostly the call of a function.
    if not facts.uses_unsloth:
        return first, "before"
    # Unsloth compiles while it loads, which must come before: look inside.
    joining = [c for c in facts.live_calls if facts.needs_all(c) and not facts.is_after_training(c)]
    scope = facts.scope(joining[0])
    here = [
        c
        for c in facts.live_calls
        if loads(c) and facts.scope(c) is scope and facts.order(c) < facts.order(joining[0])
    ]
    if here:
        return facts.statement(here[-1]), "after"
    return facts.statement(joining[0]), "before"


# ---- what some ranks alone come to ----------------------------------------------------------------

_STEPPING = frozenset({"step", "zero_grad"})
_STEPS = re.compile(
    r"(?i)optim|sched|scaler"
)  # in the name of what steps, or of the class that it was made from
_CONTROL = frozenset(
    {"should_training_stop", "should_epoch_stop", "should_save", "should_evaluate", "should_log"}
)


@dataclass(frozen=True)
class OneSided:
    """A call or an assignment that some ranks alone come to, below ``test``."""

    node: cst.CSTNode
    test: cst.BaseExpression
    kind: Literal["step", "forward", "control"]


def one_sided(facts: Facts) -> Iterator[OneSided]:
    """Yield steps of optimizers and schedulers, calls of the model, and a Trainer's control, on some ranks alone."""
    if not speaks_of_ranks(facts):
        return
    given = {cst_nodes.code_of(m) for optimizer in optimizers(facts) for m in given_models(facts, optimizer)}
    for call in facts.live_calls:
        kind: Literal["step", "forward"]
        if isinstance(call.func, cst.Attribute) and _is_step(facts, call.func):
            kind = "step"
        elif cst_nodes.code_of(call.func) in given and not without_gradients(facts, call):
            kind = "forward"
        else:
            continue
        yield from _below_a_test(facts, call, kind)
    for target in facts.attribute_targets:
        if target.attr.value in _CONTROL and not facts.is_dead(target):
            yield from _below_a_test(facts, target, "control")


def _below_a_test(
    facts: Facts, node: cst.CSTNode, kind: Literal["step", "forward", "control"]
) -> Iterator[OneSided]:
    if not facts.is_after_training(node) and (test := rank_test_above(facts, node)) is not None:
        yield OneSided(node, test, kind)


def _is_step(facts: Facts, function: cst.Attribute) -> bool:
    """Match ``optimizer.step()``, by its name or by what it was made from."""
    if function.attr.value not in _STEPPING:
        return False
    owner = function.value
    made = facts.bound(owner)
    code = cst_nodes.code_of(made.func) if isinstance(made, cst.Call) else ""
    return _STEPS.search(cst_nodes.code_of(owner)) is not None or _STEPS.search(code) is not None


rule = Rule("process-group", __doc__, find)
