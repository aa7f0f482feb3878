"""Keep a hand-written training loop as it is, and let the model compute each rank's part of every batch.

Every rank runs the notebook's loop over the notebook's batches. ``parallelize(model)`` makes a call of the
model compute this rank's rows and return the outputs of all rows, so losses, metrics and decisions are those of
one process; DDP averages the gradients. The trained models are those whose parameters an optimizer is given,
wherever the loop is: in a cell, a function or a class.

A loop with Accelerate is treated the same: the Accelerator is made as in one process. ``notebook_launcher``
becomes a plain call, because torchrun has started the processes. Where an inner loop accumulates the gradients of
single rows, which cannot be split, each row is assigned to one rank.

.. code-block:: diff

     import torch
     from torch.utils.data import DataLoader
     from transformers import AutoModelForCausalLM
     model = AutoModelForCausalLM.from_pretrained("m")
     loader = DataLoader(data, batch_size=8, shuffle=True)
     optimizer = torch.optim.AdamW(model.parameters())
    +ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
     for batch in loader:
         loss = model(**batch).loss
         loss.backward()
         optimizer.step()
         print(loss.item())
    +ddp.check_replicas(model)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis import rank_zero_work
from nb2ddp.analysis.accumulation_loops import Turns, turns_of
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.missing_names import existence_test, last_in_branch, name_test
from nb2ddp.analysis.training_loops import Optimized, loader_of, optimized_models, without_gradients
from nb2ddp.options import Options
from nb2ddp.rewriting.deferring import names_of_class
from nb2ddp.rewriting.findings import Decline, Edit, Finding, Insert, Rule
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Binding, Statement

_PARTS = "each rank computes its part of every batch"
_ONE_PROCESS = "nb2ddp: the loop sees one process; the model divides the batches"


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    seen: set[object] = set()  # loops and models that have been dealt with
    models = list(optimized_models(facts))
    for call in facts.live_calls:
        if facts.kind(call) == "accelerator":
            yield from _accelerator(facts, call)
        elif facts.qualified(call.func) in libraries.NOTEBOOK_LAUNCHERS:
            yield Edit.to(call, "torchrun starts the processes", _plain(facts, call))
        elif facts.method(call) == "backward" and not facts.is_after_training(call):
            yield from _backward(facts, call, models, seen)


def _accelerator(facts: Facts, call: cst.Call) -> Iterator[Finding]:
    """Make the Accelerator where it sees one process, so that its figures are those of whole batches."""
    function = helper(facts, "as_one_process")
    why = "every rank runs the loop as one process does; the model divides the batches"
    given = names_of_class(facts, call)
    statement = facts.statement(call)
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        assigned = statement.body[0]
        if isinstance(assigned, cst.Assign) and assigned.value is call:
            yield Edit(statement, why, partial(_assigned_alone, function=function, given=given))
            return
    yield Edit(call, why, partial(cst_nodes.deferred, function=function, given=given))


def _assigned_alone(statement: cst.CSTNode, function: str, given: Sequence[str]) -> cst.CSTNode:
    """Defer what is assigned, and say why where the line has no comment."""
    assert isinstance(statement, cst.SimpleStatementLine)
    (assigned,) = statement.body
    assert isinstance(assigned, cst.Assign)
    made = assigned.with_changes(value=cst_nodes.deferred(assigned.value, function, given))
    return cst_nodes.with_trailing_comment(statement.with_changes(body=[made]), _ONE_PROCESS)


def _plain(facts: Facts, call: cst.Call) -> str:
    """Return ``function(*args)`` for ``notebook_launcher(function, args, ...)``."""
    function, given = facts.launched(call)
    arguments = cst_nodes.given(call, 1, "args")
    name = cst_nodes.code_of(function) if function is not None else ""
    if isinstance(arguments, cst.Tuple | cst.List):
        return f"{name}({', '.join(cst_nodes.code_of(argument.value) for argument in given)})"
    return f"{name}({'*' + cst_nodes.code_of(arguments) if arguments is not None else ''})"


def _backward(
    facts: Facts, backward: cst.Call, models: list[Optimized], seen: set[object]
) -> Iterator[Finding]:
    loop = facts.training_loop(backward)
    if loop is not None and loop not in seen:
        seen.add(loop)
        calls = _model_calls(facts, loop)
        turns = turns_of(facts, loop, calls) if loader_of(facts, loop) is None else None
        if turns is not None and not _one_rank_alone(facts, loop):
            yield from _take_turns(facts, backward, loop, calls[0], turns)
            return
    elif loop is None and not facts.is_collective(backward):
        return
    found = models or _called(facts, loop)
    if not found:
        yield Decline(
            "nb2ddp cannot tell which model this backward() trains: no optimizer is given the parameters of a "
            "model that the notebook makes. Create the optimizer from model.parameters()",
            backward,
        )
    for trained in found:
        code, statement = cst_nodes.code_of(trained.model), trained.statement
        branch = last_in_branch(facts, trained.model, statement)
        statement = branch or statement
        in_line = isinstance(facts.scope(trained.model), cst.Lambda)  # a statement would run where it is made
        if not trained.each and isinstance(statement, cst.SimpleStatementLine) and len(statement.body) > 1:
            in_line |= not _goes_on(statement)  # `model = ...; return model, Adam(model.parameters())`
        if in_line:
            if trained.model not in seen:
                seen.add(trained.model)
                function = helper(facts, "parallelize")
                yield Edit.inside(trained.model, _PARTS, function)
            continue
        if (code, statement) in seen:
            continue
        seen.add((code, statement))
        if trained.each and (trained.once or not _stays(facts, trained)):
            yield Decline(
                f"nb2ddp cannot tell which models this optimizer trains (`{trained.each}`): bind the list of models to "
                "a name, and take the parameters from that list",
                statement,
            )
            continue
        line = f"{_each(trained, helper(facts, 'parallelize'))}  # nb2ddp: {_PARTS}"
        after = branch is not None or (models and _goes_on(statement))
        test = existence_test(facts, trained.models or trained.model, statement)
        yield Insert(statement, "after" if after else "before", _under(test, line), _PARTS)
    if loop is not None:
        before = facts.statement(loop)
        sure = [trained for trained in found if not existence_test(facts, trained.model, before)]
        for trained in sure or found:  # one that may not exist is compared with the others
            yield from _check(facts, loop, trained.models or trained.model, seen, trained=trained)


def _under(test: str, line: str) -> str:
    return f"if {test}:\n    {line}" if test else line


def _each(trained: Optimized, function: str) -> str:
    """Return the code of a function's call for a model, or for each of several."""
    call = f"{function}({cst_nodes.code_of(trained.model)})"
    return f"[{call} {trained.each}]" if trained.each else call


def _stays(facts: Facts, trained: Optimized) -> bool:
    """Return whether several models can be gone through once more: none is made on the way."""
    through = cst_nodes.expression(f"[0 {trained.each}]")
    names = re.findall(r"([\w.]+)\(", cst_nodes.code_of(through))
    return all(name.rpartition(".")[2] in _AGAIN for name in names)


_AGAIN = frozenset(
    "all any chain enumerate filter getattr hasattr isinstance islice items iter keys len list range reversed sorted "
    "tuple values zip".split()
)


def _goes_on(statement: Statement) -> bool:
    """Return whether what is put after a statement runs next: not after ``return``, nor inside a block."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    return not isinstance(statement.body[-1], cst.Return)


def _check(
    facts: Facts,
    loop: cst.For | cst.While,
    model: cst.BaseExpression,
    seen: set[object],
    depth: int = 3,
    *,
    trained: Optimized | None = None,
) -> Iterator[Finding]:
    """Compare the ranks after the outermost loop in the block where the model gets its name."""
    root = model.value if isinstance(model, cst.Attribute) else model
    binding = facts.binding(root)
    if binding is None:
        return
    missing = trained is not None and existence_test(facts, model, trained.statement).startswith("hasattr(")
    check = helper(facts, "check_replicas")
    why = "compare the trained parameters of all ranks"
    sites = [*_sites(facts, loop, cst_nodes.code_of(model), binding, {loop})]
    for site, code, named in sites:
        statement = _beside(facts, site, named)
        if (statement, code) in seen or not _is_bound_after(facts, statement, named):
            continue
        seen.add((statement, code))
        owner, _, attribute = code.rpartition(".")
        test = name_test(facts, named, statement)
        if not test and missing and owner:
            test = f'hasattr({owner}, "{attribute}")'
        if trained is not None and trained.each:
            if code == cst_nodes.code_of(model):  # it has no other name there
                yield Insert(statement, "after", _under(test, _each(trained, check)), why)
        elif isinstance(statement, cst.SimpleStatementLine) and not _goes_on(statement):
            if not test:  # one that may not exist is compared with another, in the next comparison
                yield Edit(site, why, partial(_with_result, check=f"{check}({code})"))
        else:
            yield Insert(statement, "after", _under(test, f"{check}({code})"), why)
    if (
        not sites and depth and isinstance(model, cst.Name)
    ):  # the loop is not reached from the optimizer's function
        for given in _given(facts, binding):
            yield from _check(facts, loop, given, seen, depth - 1)


def _is_bound_after(facts: Facts, statement: Statement, binding: Binding) -> bool:
    """Return whether a name that was bound has not been deleted when a statement is through."""
    end = facts.end(statement)
    return binding.order <= end and not any(
        binding.order < facts.order(use) <= end and any(isinstance(p, cst.Del) for p in facts.parents(use))
        for use in facts.loads_of(binding.name)
    )


def _given(facts: Facts, binding: Binding) -> Iterator[cst.Name]:
    """Yield the names that calls pass for a parameter of a function, or of ``__init__``."""
    function = binding.scope
    if not isinstance(binding.node, cst.Param) or not isinstance(function, cst.FunctionDef):
        return
    for caller in facts.callers(function):
        if isinstance(given := facts.passes(function, binding.name, caller), cst.Name):
            yield given


def _with_result(node: cst.CSTNode, check: str) -> cst.CSTNode:
    """Make ``check_replicas(model, train())`` of ``train()``."""
    assert isinstance(node, cst.BaseExpression)
    call = cst.ensure_type(cst_nodes.expression(check), cst.Call)
    return call.with_changes(args=[*call.args, cst.Arg(node)])


def _sites(
    facts: Facts, site: cst.CSTNode, code: str, binding: Binding, seen: set[cst.CSTNode]
) -> Iterator[tuple[cst.CSTNode, str, Binding]]:
    """Yield a loop, or the calls that lead to it, where a model has a name; with that name, and what binds it.

    ``self.model`` has it in all methods of its class, and as ``x.model`` where ``x.fit()`` is called.
    """
    function = facts.around(site, cst.FunctionDef)
    home = facts.scope(function) if function is not None else None
    of_self = binding.name == "self" and binding.scope is not None
    own = facts.scope(binding.scope) if of_self and binding.scope is not None else None
    if (home is own and own is not None) or (own is None and function is binding.scope):
        yield site, code, binding
        return
    for caller in facts.callers(function) if function is not None else ():
        if caller in seen:
            continue
        seen.add(caller)
        owner = caller.func.value if isinstance(caller.func, cst.Attribute) else None
        named = facts.binding(owner)
        made = named.value.func if named is not None and isinstance(named.value, cst.Call) else None
        is_own = isinstance(own, cst.ClassDef) and isinstance(made, cst.Name) and made.value == own.name.value
        if named is not None and is_own:
            yield caller, named.name + code.removeprefix("self"), named
        else:
            yield from _sites(facts, caller, code, binding, seen)


def _beside(facts: Facts, site: cst.CSTNode, binding: Binding) -> Statement:
    """Return the statement around ``site`` in the innermost block that also holds a binding."""
    around = set(facts.parents(binding.node))
    current = site
    for parent in facts.parents(site):
        body = isinstance(parent, cst.IndentedBlock) and isinstance(facts.parent(parent), cst.FunctionDef)
        shared = isinstance(parent, cst.IndentedBlock) and parent in around
        if body or shared or isinstance(parent, cst.Module):
            break
        current = parent
    assert isinstance(current, cst.SimpleStatementLine | cst.BaseCompoundStatement)
    return current


def _model_calls(facts: Facts, loop: cst.For | cst.While) -> list[cst.Call]:
    return [
        call
        for call in facts.calls_in(loop)
        if isinstance(call.func, cst.Name)
        and facts.kind(call.func) == "model"
        and not without_gradients(facts, call, loop)
    ]


def _called(facts: Facts, loop: cst.For | cst.While | None) -> list[Optimized]:
    """Return the models that a loop calls, where no optimizer tells what is trained."""
    found: dict[str, Optimized] = {}
    for call in _model_calls(facts, loop) if loop is not None else ():
        binding = facts.binding(call.func)
        if loop is not None and binding is not None and not facts.contains(loop, binding.node):
            found.setdefault(binding.name, Optimized(call.func, _beside(facts, loop, binding)))
    return list(found.values())


def _one_rank_alone(facts: Facts, loop: cst.For | cst.While) -> bool:
    return facts.runs(loop, lambda call: rank_zero_work.why_alone(facts, call) is not None)


def _take_turns(
    facts: Facts, backward: cst.Call, loop: cst.For | cst.While, call: cst.Call, turns: Turns
) -> Iterator[Finding]:
    """Assign each micro-batch of an accumulation step to one rank; sum the accumulated values over all ranks."""
    assert isinstance(backward.func, cst.Attribute)
    assert isinstance(call.func, cst.Name)
    model, ddp_model, world_size = call.func.value, facts.our("ddp_model"), facts.our("world_size")
    statement = facts.statement_in(None, loop)
    yield Insert(
        statement,
        "before",
        f"{ddp_model} = {helper(facts, 'wrap')}({model})"
        f"  # nb2ddp: train through one DDP wrapper; `{model}` is still the plain model",
        "train through one DDP wrapper",
    )
    if turns.draws:
        inputs = facts.our("inputs")
        made = cst_nodes.code_of(call.with_changes(func=cst.Name("dict")))
        made = f"{inputs} = {made}  # nb2ddp: made on every rank, so that all draw the same random numbers"
        yield Insert(turns.statement, "before", made, "all ranks draw the same random numbers")
        yield Edit.to(call, "gradients are averaged over the ranks", f"{ddp_model}(**{inputs})")
    else:
        yield Edit.to(call.func, "gradients are averaged over the ranks", ddp_model)
    test = f"not {helper(facts, 'takes_turn')}({turns.turn}, {turns.count}, {ddp_model})"
    code = f"if {test}:  # nb2ddp: this micro-batch is another rank's\n    continue"
    yield Insert(turns.statement, "before", code, "the ranks take turns")
    times = partial(cst_nodes.multiplied, factor=world_size)
    yield Edit(backward.func.value, "the sum of the gradients of all turns, not their mean", times)
    for name in turns.sums:
        code = f"{name} = {helper(facts, 'sum_over_ranks')}({name})  # nb2ddp: the sum over all ranks"
        yield Insert(loop, "after", code, "report the sum over the ranks")
    yield Insert(
        statement,
        "after",
        f"{helper(facts, 'check_replicas')}({ddp_model})",
        "compare the trained parameters of all ranks",
    )


rule = Rule("loops", __doc__, find)
