"""Let the ranks divide a Trainer's steps, and compare the ranks afterwards.

Each rank runs the notebook's own Trainer on the notebook's own arguments, as one process does. `wrap_trainer` lets
each rank compute its micro-batches of a step alone, and sums the gradients of all ranks: batches, losses, logs and
checkpoints are the notebook's. Micro-batches go to the ranks by length, and where there are fewer of them than ranks,
their rows are divided, if the first step shows that this is the same. Steps are checked against one process, and
replicas are compared at the end: silent divergence is the worst that can happen.

A Trainer that is used without a name, as in `SFTTrainer(model).train()`, gets one before all rules look at the code.
A Trainer that generates in each step (GRPO) divides the prompts by itself; the ranks' gradients are averaged.

.. code-block:: diff

     from trl import SFTTrainer
     t = SFTTrainer(model)
    +ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
     trainer_stats = t.train()
    +ddp.check_replicas(ddp_model)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count

import libcst as cst
from libcst import matchers

from nb2ddp import libraries
from nb2ddp.analysis import micro_batches, rank_zero_work
from nb2ddp.analysis.common_paths import changes_state
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.flow import pairs_of
from nb2ddp.analysis.training_arguments import DEFAULTS, batch_code, libraries_know_ranks, recipes
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Batch, Decline, Edit, Finding, Insert, Note
from nb2ddp.rewriting.runtime_calls import comparing, helper
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement

_UNNAMED = "this Trainer has no name; assign it to a variable on a line of its own"
_IN_TURNS = "the ranks divide each step, and sum the gradients"
_WHOLE = "every rank computes all micro-batches, because they write to files or trackers"
_IN_ORDER = "every rank computes all micro-batches, because they read what earlier ones have left"
_WRITING = "every rank computes its batches, because they write"
_FREES = "the notebook frees the model's memory"


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    yield from named(facts, options)
    ranks = libraries_know_ranks(facts, options.strategy)
    effects = () if ranks else micro_batches.effects(facts)
    for call in effects:
        why = "a micro-batch writes here, so every rank computes all micro-batches, and rank 0 writes: right, and no"
        instead = "Keep figures in a list instead, and write them in a callback or after training"
        yield Note(f"{why} faster than one GPU. {instead}", call)
    earlier = micro_batches.earlier_reads(facts) if facts.train_calls and not ranks else ()
    for node, what in earlier:
        why = f"a micro-batch reads {what} here, which earlier micro-batches of the step have changed, so"
        yield Note(f"{why} every rank computes all micro-batches: right, and no faster than one GPU", node)
    yield from _rewards(facts) if ranks else ()
    for call in facts.train_calls:
        trainer, statement = facts.trained(call), facts.statement(call)
        if trainer is None or not _is_place(trainer):
            continue
        if _is_named_within(facts, trainer, statement):
            yield Decline(_UNNAMED, call)
            continue
        code = cst_nodes.code_of(trainer)
        if options.strategy == "fsdp":
            use = f"{helper(facts, 'use_shards')}({code})  # nb2ddp: each rank trains with its share of the model"
            yield Insert(statement, "before", use, "train the model that Unsloth has sharded")
            yield from comparing(facts, statement, f"{code}.model")
            continue
        ddp_model = facts.our("ddp_model")
        wrap = helper(facts, "wrap_rank_trainer" if ranks else "wrap_trainer")
        arguments = f'{code}, batch="scale"' if options.batch == "scale" and not ranks else code
        arguments += ", whole=True" if effects or earlier else ""
        whole = _WHOLE if effects else _IN_ORDER if earlier else ""
        why = "the ranks' gradients are averaged" if ranks else whole or _IN_TURNS
        batch = None if ranks or whole or options.batch == "scale" else _batch(facts)
        line = f"{ddp_model} = {wrap}({arguments})  # nb2ddp: {why}"
        yield Insert(statement, "before", line, why, batch)
        if options.batch == "scale" and not ranks:
            why = "--batch scale: each step takes as many times the notebook's data as there are GPUs"
            yield Note(why, call)
        made = facts.bound(trainer)
        anew = isinstance(made, cst.Call) and facts.keyword(made, "model_init") is not None
        yield from comparing(facts, statement, f"{code}.model" if anew else ddp_model)
        if facts.is_deleted(facts.scope(call)):
            code = f"del {ddp_model}  # nb2ddp: it holds the model too, which is to be freed"
            yield Insert(statement, "after", code, _FREES)
    yield from () if ranks else _prepared(facts, whole=bool(effects))


def named(facts: Facts, options: Options) -> Iterator[Finding]:
    """Give a Trainer that is used without a name one, which all that is done with it needs."""
    taken = facts.bound_names | {load.name for load in facts.collected.loads}
    names = (name for n in count(1) if (name := f"trainer_{n}" if n > 1 else "trainer") not in taken)
    for call in facts.live_calls:
        trainer = facts.trained(call)
        if isinstance(call.func, cst.Attribute) and facts.method(call) in libraries.COLLECTIVE_METHODS:
            trainer = call.func.value if facts.kind(call.func.value) == "trainer" else None
        if trainer is None or _is_place(trainer):
            continue
        match statement := facts.statement(call):
            case cst.SimpleStatementLine(
                body=[cst.Expr(value=value) | cst.Assign(value=value) | cst.Return(value=value)]
            ) if value is call and facts.parent(trainer) in (call.func, *call.args[:1]):
                name, code = next(names), cst_nodes.code_of(trainer)
                if "\n" in code and (call.lpar or call.func.lpar or call.func is not facts.parent(trainer)):
                    code = f"({code})"  # a line may end where no bracket of the Trainer's own is open
                yield Insert(statement, "before", f"{name} = {code}", "a Trainer without a name gets one")
                yield Edit.to(trainer, f"the Trainer's name is `{name}`", name)
                if facts.is_deleted(facts.scope(call)):
                    code = f"del {name}  # nb2ddp: it holds the model, which is to be freed"
                    yield Insert(statement, "after", code, _FREES)
            case _:
                yield Decline(_UNNAMED, call)


def _is_named_within(facts: Facts, trainer: cst.BaseExpression, statement: Statement) -> bool:
    """Return whether a statement itself gives a Trainer its name: by a walrus, or in a comprehension."""
    names = [cst.ensure_type(name, cst.Name) for name in matchers.findall(trainer, matchers.Name())]
    made = [binding.node for binding in map(facts.binding, names) if binding is not None]
    loops = facts.nodes(cst.CompFor, within=statement)
    targets = {name.value for loop in loops for name in facts.nodes(cst.Name, within=loop.target)}
    return any(facts.contains(statement, node) for node in made) or any(n.value in targets for n in names)


def _is_place(node: cst.BaseExpression) -> bool:
    """Return whether an expression is a name, or a part of what a name holds, that may be evaluated once more."""
    if isinstance(node, cst.Attribute | cst.Subscript):
        return _is_place(node.value) and not matchers.findall(node, matchers.Call() | matchers.NamedExpr())
    return isinstance(node, cst.Name)


def _rewards(facts: Facts) -> Iterator[Note]:
    """Name the reward functions that remember or write: a rank calls them with its own completions alone."""
    writes = partial(rank_zero_work.writes, facts)
    for function in (f for call in facts.live_calls for f in micro_batches.rewards(facts, call)):
        home = facts.scope(function)
        name = (home if isinstance(home, cst.ClassDef) else function).name.value
        if changes_state(facts, function.body):
            why = f"the reward function `{name}` keeps something from call to call, and each rank calls it with its own"
            effect = "what it keeps, and what depends on that, is not as in one process"
            yield Note(f"{why} completions alone: {effect}", function)
        if facts.runs(function.body, writes):
            why = f"what the reward function `{name}` writes is of rank 0's completions alone, for each rank rewards"
            yield Note(f"{why} its own: the Trainer's log_completions=True shows all", function)


def _batch(facts: Facts) -> Batch | None:
    """Return the batch of the notebook's only training arguments, in numbers; None where it is not in sight."""
    made = list(recipes(facts))
    later = any(t.attr.value.replace("per_gpu", "per_device") in DEFAULTS for t in facts.attribute_targets)
    node, given = made[0] if len(made) == 1 else (None, None)
    if later or given is None or {"no_cuda", "use_cpu"} & {*dict(pairs_of(node))}:
        return None
    return Batch.of(*batch_code(given), in_turns=True)


def _prepared(facts: Facts, *, whole: bool) -> Iterator[Finding]:
    """Prepare a Trainer that evaluates or searches before it trains: the ranks divide its batches too."""
    prepared: set[tuple[str, object]] = set()
    for call in facts.live_calls:
        if not isinstance(call.func, cst.Attribute) or facts.kind(call.func.value) != "trainer":
            continue
        trainer, method = call.func.value, facts.method(call)
        code = cst_nodes.code_of(trainer)
        # a name may be given to another Trainer, and an attribute be one of another object
        which = (code, facts.binding(trainer) if isinstance(trainer, cst.Name) else facts.scope(call))
        if which not in prepared and method in ("evaluate", "predict", "hyperparameter_search"):
            more, why = ", whole=True" if whole else "", _WRITING if whole else "the ranks divide its batches"
            prepare = f"{helper(facts, 'prepare_trainer')}({code}{more})  # nb2ddp: {why}"
            yield Insert(facts.statement(call), "before", prepare, why)
        if facts.is_collective(call):
            prepared.add(which)
