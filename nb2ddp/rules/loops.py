"""Keep a hand-written training loop as it is, and let the model compute each rank's part of every batch.

Every rank runs the notebook's loop over the notebook's batches. ``parallelize(model)`` makes a call of the
model compute this rank's rows and return the outputs of all rows, so losses, metrics and decisions are those of
one process; DDP averages the gradients. The trained models are those whose parameters an optimizer is given by
their names. Where an optimizer gets them another way (from a list, a function, an imported module), the run finds the
models: ``parallelize_trained()`` divides what is called with parameters that an optimizer was given.
``only_outputs``: where a line reads a model's loss alone, say, no logits are exchanged.

A loop with Accelerate is treated the same: the Accelerator is made as in one process. ``notebook_launcher``
becomes a plain call, because torchrun has started the processes.

.. code-block:: diff

     import torch
     from torch.utils.data import DataLoader
     from transformers import AutoModelForCausalLM
     model = AutoModelForCausalLM.from_pretrained("m")
     loader = DataLoader(data, batch_size=8, shuffle=True)
     optimizer = torch.optim.AdamW(model.parameters())
    +ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
     for batch in loader:
    -    loss = model(**batch).loss
    +    loss = ddp.only_outputs(model, "loss")(**batch).loss
         loss.backward()
         optimizer.step()
         print(loss.item())
    +ddp.check_replicas()
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from operator import methodcaller

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis import training_loops
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.shell_commands import shell_calls
from nb2ddp.analysis.training_arguments import libraries_know_ranks
from nb2ddp.options import Options
from nb2ddp.rewriting.deferring import deferring
from nb2ddp.rewriting.findings import Decline, Edit, Finding, Insert, Note
from nb2ddp.rewriting.runtime_calls import comparing, helper
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement

_PARTS = "each rank computes its part of every batch"


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    asks = bool(facts.train_calls) and libraries_know_ranks(facts, options.strategy)
    for call in facts.live_calls:
        if facts.kind(call) == "accelerator":
            why = "every rank runs the loop as one process does; the model divides the batches"
            yield from deferring(facts, call, why, function="as_one_process")
        elif asks and facts.method(call) == "prepare" and facts.kind(facts.owner(call)) == "accelerator":
            why = "beside a Trainer that generates, Accelerate knows of all ranks, and gives other batches than one"
            yield Decline(f"{why} process has: train this in its own notebook", call)
        elif facts.qualified(call.func) in libraries.NOTEBOOK_LAUNCHERS:
            number = facts.value(cst_nodes.given(call, 2, "num_processes"))
            on_tpu = number is None and any("torch_xla" in shell.command for shell in shell_calls(facts))
            if on_tpu or (isinstance(number, cst.Integer) and number.value != "1"):
                each = f"{cst_nodes.code_of(number)} processes" if number else "a process on each TPU core"
                why = f"this trains in {each} as it is, each with batches of its own, and nb2ddp converts what one"
                instead = "run the notebook itself, or write num_processes=1"
                yield Decline(f"{why} process trains: {instead}", call)
            yield Edit.to(call, "torchrun starts the processes", _plain(facts, call))
    for call, name, where in training_loops.in_workers(facts):
        if where == "thread":
            why = f"`{name}` trains in a thread here, and what ranks exchange in several threads would get mixed up"
            instead = "Call it without a thread, one training after another: each takes all GPUs"
            yield Decline(f"{why}: the run hangs or aborts. {instead}", call)
        elif where == "widget":
            why = "trains when somebody uses this widget, and nobody does under torchrun: call it in a cell instead"
            yield Decline(f"`{name}` {why}", call)
        else:
            why = "trains in another process here: every rank trains it whole, no faster than one GPU"
            if where == "program":
                why = "starts a program in a thread, on every rank: begin the thread below `if ddp.is_main_process:`"
            yield Note(f"`{name}` {why}", call)
    yield from _hand_written(facts)


def _plain(facts: Facts, call: cst.Call) -> str:
    """Return ``function(*args)`` for ``notebook_launcher(function, args, ...)``."""
    function, given = facts.launched(call)
    arguments = cst_nodes.given(call, 1, "args")
    name = cst_nodes.code_of(function) if function is not None else ""
    if isinstance(arguments, cst.Tuple | cst.List):
        return f"{name}({', '.join(cst_nodes.code_of(argument.value) for argument in given)})"
    return f"{name}({'*' + cst_nodes.code_of(arguments) if arguments is not None else ''})"


def _hand_written(facts: Facts) -> Iterator[Finding]:
    """Divide the batches of the models that loops train, and compare their replicas."""
    calls = training_loops.backward_calls(facts)
    if not calls:
        return
    made = training_loops.optimizers(facts)
    if not _is_in_sight(facts, made, calls):
        why = "nb2ddp sees no PyTorch model that this backward() trains: no optimizer is given model.parameters(). Give"
        why += " them to one where it trains a model; gradients of inputs, plain tensors and NumPy need no second GPU"
        yield Decline(why, calls[0])
        return
    yield from _divided(facts, made)
    for statement in training_loops.ends(facts, made):
        yield from comparing(facts, statement)
    for target in facts.nodes(cst.ComparisonTarget):  # type(m) is nn.Linear: while it is divided, it is not
        name, asked = facts.qualified(target.comparator), cst_nodes.code_of(facts.parent(target) or target)
        own = any(isinstance(found.node, cst.ClassDef) for found in facts.definitions(name))
        if (own or name.startswith("torch.nn.")) and re.match(r"type\(.* is |.*\.__class__ is ", asked):
            equal = cst.NotEqual() if isinstance(target.operator, cst.IsNot) else cst.Equal()
            why = "a divided module's class is equal to its own"
            yield Edit(target, why, methodcaller("with_changes", operator=equal))


def _is_in_sight(facts: Facts, made: Sequence[cst.Call], backward: Sequence[cst.Call]) -> bool:
    """Return whether loops may train a module: it gives its parameters, is called, or an optimizer is out of sight."""
    homes = (d.scope for d in facts.definitions("parameters") if isinstance(d.scope, cst.ClassDef))
    own = any(not any(base.endswith(("Module", "Model")) for base in facts.bases(home)) for home in homes)
    given = (call for call in facts.live_calls if facts.method(call) in libraries.PARAMETER_METHODS)
    inside = [c for each in made for c in facts.calls_in(each) if facts.method(c).endswith("parameters")]
    known = all(facts.qualified(call.func).startswith("torch.") for call in made)
    if not known or (not own and (inside or not all(_is_frozen(facts, call) for call in given))):
        return True
    loops = [loop for call in backward if (loop := facts.training_loop(call)) is not None]
    return any(facts.runs(loop, lambda call: facts.kind(call.func) == "model") for loop in loops)


def _is_frozen(facts: Facts, parameters: cst.Call) -> bool:
    """Match ``for p in net.parameters(): p.requires_grad_(False)``, of a model that stays as it is."""
    loop = facts.parent(parameters)
    if not isinstance(loop, cst.For) or loop.iter is not parameters:
        return False
    body = "".join(cst_nodes.code_of(loop.body).split())
    return re.fullmatch(r":?\w+\.requires_grad(?:_\(False\)|=False)", body) is not None


def _divided(facts: Facts, made: Sequence[cst.Call]) -> Iterator[Finding]:
    """Divide models by their names; let the run find those of optimizers that do not name them."""
    seen: set[tuple[str, Statement]] = set()
    hidden = not made
    for optimizer in made:
        if facts.qualified(optimizer.func).endswith("LBFGS"):
            yield Note("L-BFGS magnifies rounding: near the notebook's run, not equal", optimizer)
        named = training_loops.named_models(facts, optimizer)
        given = [c for c in facts.calls_in(optimizer) if facts.method(c).endswith("parameters")]
        hidden |= len(named) < max(1, len(given))  # model.hyperparameters() names none
        for found in named:
            code = cst_nodes.code_of(found.model)
            if (code, found.statement) not in seen:
                seen.add((code, found.statement))
                line = f"{helper(facts, 'parallelize')}({code})  # nb2ddp: {_PARTS}"
                yield Insert(found.statement, found.where, line, _PARTS)
    for statement in _beginnings(facts, made) if hidden else ():
        line = f"{helper(facts, 'parallelize_trained')}()  # nb2ddp: {_PARTS}, of all models that optimizers train"
        yield Insert(statement, "before", line, f"{_PARTS}, of all models that optimizers train")
    for call in facts.live_calls:
        code = cst_nodes.code_of(call.func)
        is_model = code in dict(seen) or (code.isidentifier() and facts.kind(call.func) == "model")
        if is_model and (read := training_loops.read_outputs(facts, call)):
            only = f"{helper(facts, 'only_outputs')}({', '.join((code, *read))})"
            yield Edit.to(call.func, "ranks exchange only those outputs that are read", only)


def _beginnings(facts: Facts, made: Sequence[cst.Call]) -> list[Statement]:
    """Return where loops begin to make what they train; after a Trainer, whose models are its own, once more."""

    def begins(call: cst.Call) -> bool:
        is_model = facts.loads_model(call) or facts.kind(call) == "model"
        return is_model or call in made or facts.method(call) in libraries.PARAMETER_METHODS

    found: list[Statement] = []
    first: Statement | None = None
    for statement in facts.top_statements:
        if facts.runs(statement, lambda call: facts.trained(call) is not None):
            first = None
        if first is None and (training_loops.trains(facts, statement) or facts.runs(statement, begins)):
            first = statement
        if training_loops.trains(facts, statement) and first is not None and first not in found:
            found.append(first)
    return found
