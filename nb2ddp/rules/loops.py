"""A hand-written training loop trains through DDP, each rank on its share of every batch.

The batches are the notebook's own, in the notebook's order, so the losses are too. Only the calls whose
gradients are needed go through the wrapper; evaluation and saving keep using ``model``. A loss that is
reported is the mean over the ranks.

The step may stand in a function that the loop calls. Where no DataLoader makes the batches, and an inner
loop gathers the gradients of several for a step, the ranks take turns at them.

A loop that runs on Accelerate is distributed already and stays as it is. Its batches are split over the
ranks, so that a step still takes the notebook's batch, and ``notebook_launcher`` gives way to a plain call:
torchrun has started the processes.

.. code-block:: diff

     from torch.utils.data import DataLoader
     from transformers import AutoModelForCausalLM
     model = AutoModelForCausalLM.from_pretrained("m")
    -loader = DataLoader(data, batch_size=8, shuffle=True)
    +loader = share_batches(DataLoader(data, batch_size=8, shuffle=True))
    +ddp_model = wrap_ddp(model)  # nb2ddp: `model` itself stays as it is
     for batch in loader:
    -    loss = model(**batch).loss
    +    loss = ddp_model(**batch).loss
         loss.backward()
    -    print(loss.item())
    +    print(mean_over_ranks(loss).item())
    +check_replicas(ddp_model)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import partial

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis import rank_zero_work
from nb2ddp.analysis.accumulation_loops import Turns, turns_of
from nb2ddp.analysis.facts import Facts, launched
from nb2ddp.analysis.training_loops import given_to_function, is_global, is_trained_call, loader_of, loss_of
from nb2ddp.rewriting.findings import Decline, Edit, Finding, Insert, Need, Note, Options, Rule
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement

_SCHEDULES = re.compile(r"sched|plateau|lr_|warmup|LR\b", re.IGNORECASE)
_CONFIGURATION = "DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True)"


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    done: set[object] = set()  # loops, loaders and models that have been seen to
    gated = {facts.statement(call) for call in facts.live_calls if rank_zero_work.why_alone(facts, call)}
    for call in facts.live_calls:
        if facts.kind(call) == "accelerator":
            yield from _accelerator(facts, call, options)
        elif facts.qualified(call.func) in libraries.NOTEBOOK_LAUNCHERS:
            yield Edit(
                call, "torchrun starts the processes", partial(cst_nodes.replaced, code=_plain(facts, call))
            )
        loop = _loop_of(facts, call)
        if loop is not None and loop not in done:
            if not any(isinstance(seen, cst.For | cst.While) for seen in done):
                yield from _batch_norms(facts)
            done.add(loop)
            yield from _loop(facts, call, loop, done, gated)
        elif loop is None and facts.last_collective is None and _is_step(facts, call):
            yield Decline(
                "this backward() stands in a function, apart from the loop over the batches, so that the two "
                "cannot be followed together; write the step into the loop",
                call,
            )


def _batch_norms(facts: Facts) -> Iterator[Note]:
    for call in facts.live_calls:
        if facts.qualified(call.func).startswith("torch.nn.BatchNorm"):
            yield Note(
                "a batch norm takes mean and variance of one rank's share of a batch, so losses are near the "
                "notebook's, not equal; on GPUs torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) takes "
                "them of all shares",
                call,
            )
            return


def _loop_of(facts: Facts, call: cst.Call) -> cst.For | cst.While | None:
    """The loop that a call of ``backward()`` trains in; it may call the function in which that stands."""
    return facts.training_loop(call) if facts.method(call) == "backward" else None


def _is_step(facts: Facts, call: cst.Call) -> bool:
    """Whether this is ``backward()`` in a function that is one step of a training."""
    function = facts.scope(call)
    return (
        facts.method(call) == "backward"
        and isinstance(function, cst.FunctionDef)
        and not isinstance(facts.scope(function), cst.ClassDef)
    )


def _accelerator(facts: Facts, call: cst.Call, options: Options) -> Iterator[Finding]:
    if options.batch == "scale":
        return
    if any(facts.keyword(call, name) for name in ("dataloader_config", "split_batches")):
        yield Note("this Accelerator's own settings decide how much data a step takes on all ranks", call)
        return
    yield Insert(
        facts.statement(call),
        "before",
        "from accelerate import DataLoaderConfiguration  # nb2ddp: for the batches, see below",
        "what splits the batches",
    )

    def split(node: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(node, cst.Call)
        comment = "nb2ddp: the notebook's batch, split over the ranks"
        return cst_nodes.with_keyword(node, "dataloader_config", _CONFIGURATION, comment)

    yield Edit(call, "Accelerate splits each batch over the ranks; left alone, a step takes more data", split)
    yield Note(
        "Accelerate draws shuffled samples in an order of its own, so single losses are not the notebook's",
        call,
    )


def _plain(facts: Facts, call: cst.Call) -> str:
    """``function(*args)`` for ``notebook_launcher(function, args, ...)``."""
    function, given = launched(facts, call)
    unnamed = [argument.value for argument in call.args if argument.keyword is None]
    arguments = facts.keyword(call, "args") or (unnamed[1] if len(unnamed) > 1 else None)
    name = cst_nodes.code_of(function) if function is not None else ""
    if isinstance(arguments, cst.Tuple | cst.List):
        return f"{name}({', '.join(cst_nodes.code_of(argument.value) for argument in given)})"
    return f"{name}({'*' + cst_nodes.code_of(arguments) if arguments is not None else ''})"


def _loop(
    facts: Facts, backward: cst.Call, loop: cst.For | cst.While, done: set[object], gated: set[Statement]
) -> Iterator[Finding]:
    assert isinstance(backward.func, cst.Attribute)
    function = facts.scope(loop)
    if function is not None and (
        not isinstance(function, cst.FunctionDef) or facts.scope(function) is not None
    ):
        yield Decline("a training loop inside a class cannot be followed; move it to a cell of its own", loop)
        return
    statement = facts.statement_in(function, loop)
    step: cst.CSTNode = loop  # what one batch goes through
    if not facts.contains(loop, backward):
        step = cst.ensure_type(facts.scope(backward), cst.FunctionDef)
    models = [
        call
        for call in facts.calls_in(step)
        if isinstance(call.func, cst.Name)
        and facts.kind(call.func) == "model"
        and is_trained_call(facts, call, step)
    ]
    called = [call.func for call in models if isinstance(call.func, cst.Name)]
    called = called or given_to_function(facts, backward, step)
    names = {name.value for name in called}
    in_reach = step is loop or all(is_global(facts, name) for name in called)  # the loop has the names too
    if facts.kind(backward.func.value) == "accelerator":
        for name in sorted(names) if in_reach else ():
            yield from _check(facts, statement, name)
        return
    if backward.args:
        yield Decline("nb2ddp cannot see what this backward() belongs to; make it in the notebook", backward)
        return
    if len(names) != 1:
        yield Decline("nb2ddp cannot tell which model this loop trains", loop)
        return
    if not in_reach:
        yield Decline(
            "this backward() stands in a function that is given its model, apart from the loop over the "
            "batches; let it use the notebook's model, or write the step into the loop",
            backward,
        )
        return
    loader = loader_of(facts, loop)
    one_rank_alone = any(facts.contains(loop, part) for part in gated)
    turns = turns_of(facts, loop, models) if loader is None and not one_rank_alone and step is loop else None
    if loader is None and turns is None:
        yield Decline(
            "nb2ddp cannot find the DataLoader of this loop, so its batches cannot be shared out", loop
        )
        return
    (model,) = names
    ddp_model = facts.our("ddp_model")
    yield Need("wrap_ddp")
    if loader is not None:
        yield Need("share_batches")
    if loader is not None and loader not in done:
        done.add(loader)
        share = partial(cst_nodes.wrapped, function=facts.our("share_batches"))
        yield Edit(loader, "each rank takes its share of every batch", share)
    wrapped = facts.binding(called[0])
    if (wrapped, function) not in done:
        done.add((wrapped, function))
        yield Insert(
            statement,
            "before",
            f"{ddp_model} = {facts.our('wrap_ddp')}({model})  # nb2ddp: `{model}` itself stays as it is",
            "train through one DDP wrapper",
        )
    for held in called if turns is None or not turns.draws else ():
        wrapper = partial(cst_nodes.replaced, code=ddp_model)
        yield Edit(held, "gradients are averaged over the ranks", wrapper)
    if turns is not None:
        yield from _take_turns(facts, backward, loop, models[0], turns, ddp_model)
    else:
        yield from _accumulation(facts, loop, ddp_model)
        yield from _reports(facts, backward, step, gated)
        yield from _counts(facts, loop)
    yield from _check(facts, statement, ddp_model)
    if (
        facts.is_deleted(function)
        and len({_loop_of(facts, other) for other in facts.live_calls} - {None}) == 1
    ):
        code = f"del {ddp_model}  # nb2ddp: it holds the model too, which is to be freed"
        yield Insert(statement, "after", code, "the notebook frees the model's memory")


def _take_turns(
    facts: Facts,
    backward: cst.Call,
    loop: cst.For | cst.While,
    call: cst.Call,
    turns: Turns,
    ddp_model: str,
) -> Iterator[Finding]:
    """Each batch that a step gathers is one rank's; what the turns add up is added up over the ranks too."""
    assert isinstance(backward.func, cst.Attribute)
    yield Need("takes_turn")
    if turns.draws:
        inputs = facts.our("inputs")
        made = cst_nodes.code_of(call.with_changes(func=cst.Name("dict")))
        made = f"{inputs} = {made}  # nb2ddp: every rank draws them, so that all draw the same"
        yield Insert(turns.statement, "before", made, "all ranks draw the same random numbers")
        yield Edit(
            call,
            "gradients are averaged over the ranks",
            partial(cst_nodes.replaced, code=f"{ddp_model}(**{inputs})"),
        )
    test = f"not {facts.our('takes_turn')}({turns.turn}, {turns.count}, {ddp_model})"
    code = f"if {test}:  # nb2ddp: this batch is another rank's\n    continue"
    yield Insert(turns.statement, "before", code, "the ranks take turns")
    world_size = facts.our("world_size")
    times = partial(cst_nodes.multiplied, factor=world_size)
    yield Edit(backward.func.value, "the sum of the gradients of all turns, not their mean", times)
    for name in turns.sums:
        yield Need("mean_over_ranks")
        code = (
            f"{name} = {facts.our('mean_over_ranks')}({name}) * {world_size}  # nb2ddp: of all ranks' turns"
        )
        yield Insert(loop, "after", code, "report the sum over the ranks")


def _accumulation(facts: Facts, loop: cst.For | cst.While, ddp_model: str) -> Iterator[Finding]:
    """A loop that steps every few batches need not average gradients in between."""
    if not isinstance(loop.body, cst.IndentedBlock):
        return
    for part in loop.body.body:
        if not isinstance(part, cst.If) or part.orelse is not None or "%" not in cst_nodes.code_of(part.test):
            continue
        inside = [call for call in facts.calls_in(part.body) if _steps_optimizer(facts, call)]
        steps = (
            bool(inside)
            and not _steps_elsewhere(facts, inside, part)
            and not _clips_outside(facts, loop, part)
        )
        names = facts.loads_in(part.test)
        changing = any(facts.contains(loop.body, b.node) for name in names for b in facts.bindings(name))
        if steps and not changing:
            first = loop.body.body[0]
            assert isinstance(first, cst.SimpleStatementLine | cst.BaseCompoundStatement)
            test = cst_nodes.code_of(cst_nodes.parenthesised(part.test))
            code = f"{ddp_model}.require_backward_grad_sync = {test}"
            comment = "nb2ddp: as no_sync() does: average only for a step"
            yield Insert(first, "before", f"{code}  # {comment}", "gradients are averaged once for a step")
            return


def _steps_elsewhere(facts: Facts, steps: list[cst.Call], inside: cst.If) -> bool:
    """Whether an optimizer takes a step at another place too, with gradients that were not averaged yet."""
    optimizers = {cst_nodes.code_of(step.func) for step in steps}
    return any(
        facts.method(call) == "step"
        and cst_nodes.code_of(call.func) in optimizers
        and not facts.contains(inside, call)
        for call in facts.live_calls
    )


def _steps_optimizer(facts: Facts, call: cst.Call) -> bool:
    """``optimizer.step()`` or ``scaler.step(optimizer)``, and not a scheduler's."""
    if facts.method(call) != "step":
        return False
    assert isinstance(call.func, cst.Attribute)
    binding = facts.binding(call.func.value) if isinstance(call.func.value, cst.Name) else None
    made = binding.value if binding is not None else None
    maker = facts.qualified(made.func) if isinstance(made, cst.Call) else ""
    return not _SCHEDULES.search(f"{cst_nodes.code_of(call.func.value)} {maker}")


def _clips_outside(facts: Facts, loop: cst.For | cst.While, inside: cst.If) -> bool:
    """Whether gradients are clipped after each batch: that needs those of all ranks."""
    return any(
        facts.method(call).startswith("clip_grad") and not facts.contains(inside, call)
        for call in facts.calls_in(loop.body)
    )


def _check(facts: Facts, statement: Statement, model: str) -> Iterator[Finding]:
    yield Need("check_replicas")
    code = f"{facts.our('check_replicas')}({model})"
    yield Insert(statement, "after", code, "compare the trained parameters of all ranks")


def _reports(facts: Facts, backward: cst.Call, loop: cst.CSTNode, gated: set[Statement]) -> Iterator[Finding]:
    """The loss, wherever the loop reads it for people and not for gradients."""
    assert isinstance(backward.func, cst.Attribute)
    loss = loss_of(backward.func.value)
    if loss is None:
        return
    losses = {cst_nodes.code_of(loss): loss}
    if isinstance(loss, cst.Name):
        binding = facts.binding(loss)
        value = loss_of(binding.value) if binding is not None and binding.value is not None else None
        if isinstance(value, cst.Attribute) and facts.contains(loop, value):  # the output holds it too
            losses[cst_nodes.code_of(value)] = value
    mean = facts.our("mean_over_ranks")
    averaged: set[Statement] = set()
    for name, held in losses.items():
        for use in _uses(facts, held, loop):
            if facts.contains(backward, use) or _feeds_gradient(facts, use, losses):
                continue
            yield Need("mean_over_ranks")
            write = next((p for p in facts.parents(use) if p in gated), None)
            if write is None:
                wrapped = partial(cst_nodes.wrapped, function=mean)
                yield Edit(use, "report the mean over the ranks", wrapped)
            elif write not in averaged and facts.order(write) > facts.order(backward):
                averaged.add(write)  # type: ignore[arg-type]
                code = f"{name} = {mean}({name})  # nb2ddp: of all ranks, for what rank 0 writes"
                yield Insert(write, "before", code, "report the mean over the ranks")  # type: ignore[arg-type]


def _counts(facts: Facts, loop: cst.CSTNode) -> Iterator[Finding]:
    """A loop may add up how many rows or tokens it has seen, for people to read."""
    for call in facts.calls_in(loop):
        counts = facts.method(call) in ("numel", "size") or facts.qualified(call.func) == "len"
        parents = facts.parents(call)
        added = next((p for p in parents if isinstance(p, cst.AugAssign | cst.BaseCompoundStatement)), None)
        if counts and isinstance(added, cst.AugAssign):
            yield Note("this counts a rank's own share of the batches, not what all ranks have seen", call)
            return


def _uses(
    facts: Facts, loss: cst.Name | cst.Attribute, loop: cst.CSTNode
) -> Iterator[cst.Name | cst.Attribute]:
    """Where a loss that loss_of() found is read, in its loop or between this and the next epoch."""
    name = loss if isinstance(loss, cst.Name) else cst.ensure_type(loss.value, cst.Name)
    epochs = loop
    for parent in facts.parents(loop):
        if isinstance(parent, cst.FunctionDef | cst.ClassDef):
            break
        if isinstance(parent, cst.For | cst.While):
            epochs = parent
    for use in facts.uses(name.value, epochs):
        binding = facts.binding(use)
        if not facts.contains(loop, use) and (binding is None or not facts.contains(loop, binding.node)):
            continue
        around = facts.parent(use)
        if isinstance(loss, cst.Name):
            yield use
        elif isinstance(around, cst.Attribute) and around.attr.value == loss.attr.value:
            yield around


def _feeds_gradient(facts: Facts, use: cst.CSTNode, losses: Collection[str]) -> bool:
    parent = facts.parent(use)
    if isinstance(parent, cst.Attribute) and parent.attr.value == "backward":
        return True
    for around in facts.parents(use):
        if isinstance(around, cst.Assign):
            return any(cst_nodes.code_of(t.target) in losses for t in around.targets)
        if isinstance(around, cst.BaseSmallStatement):
            return False
    return False


rule = Rule("loops", __doc__, find)
