"""Remove earlier attempts at several GPUs: a process group, DDP wraps, questions for the rank.

Guides recommend to wrap the model with DDP and unwrap it again, to join the process group before Unsloth compiles, and
to let rank 0 alone evaluate, save or get other arguments, which
leaves the ranks waiting for one another. The script does by itself what is needed of these: wherever the notebook asks
for the rank or the number of ranks, it is told of one process, and rank 0 alone writes. In a loop of the notebook's,
DataParallel stays, with this rank's GPU alone: the names of parameters in saved files begin with ``module.``.

.. code-block:: diff

     import torch.distributed as dist
     from trl import SFTConfig
    -dist.init_process_group("nccl")
    -model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])
    -args = SFTConfig("out", save_strategy="steps" if dist.get_rank() == 0 else "no")
    +args = SFTConfig("out", save_strategy="steps" if 0 == 0 else "no")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis import ranks
from nb2ddp.analysis.common_paths import called_by_all, parts_ranks
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.ranks import JOINS, LEAVES
from nb2ddp.analysis.training_arguments import libraries_know_ranks
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Decline, Drop, Edit, Finding, Gate
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes

_BARRIER = "torch.distributed.barrier"
_OF_SCRIPT = "the script joins and leaves the process group by itself"


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for cell in facts.cells:
        if "made by nb2ddp" in cell.source:
            node = cell.module.body[0] if cell.module.body else None
            why = "this is a script that nb2ddp has made already: run it with `nb2ddp run` or torchrun"
            yield Decline(why, node)
            return
    if not ranks.are_named(facts):
        return
    # A Trainer or an Accelerator would wrap the model once more.
    wraps = any(facts.kind(call) in ("trainer", "accelerator") for call in facts.live_calls)
    keeps = options.strategy == "ddp" and not wraps
    yield from _by_hand(facts, keeps_wrapper=keeps)
    yield from _of_ranks(facts, keeps_ranks=libraries_know_ranks(facts, options.strategy))
    yield from _unwrapped(facts, keeps_wrapper=keeps)


def _by_hand(facts: Facts, *, keeps_wrapper: bool) -> Iterator[Finding]:
    for call in facts.live_calls:
        name = facts.qualified(call.func)
        statement = facts.statement(call)
        if name.endswith("DistributedSampler"):
            number = facts.value(cst_nodes.given(call, 1, "num_replicas"))
            if not (isinstance(number, cst.Integer) and number.value == "1"):
                why = "this sampler gives each process its part of the rows already: save the notebook as a script and"
                instead = "start that with torchrun, or write num_replicas=1, rank=0 here, with which one process has"
                yield Decline(f"{why} {instead} all rows", call)
        elif name in (JOINS, LEAVES, _BARRIER):
            if name == _BARRIER and called_by_all(facts, call) and not facts.is_after_training(call):
                waits = f"{helper(facts, 'from_all_ranks')}(None)"
                yield Edit.to(call, "waits without a process group", waits)
            elif facts.line_of(call) is not None:
                yield Drop(statement, _OF_SCRIPT)
            else:
                yield Edit.to(call, _OF_SCRIPT, "None")
        elif keeps_wrapper and name in libraries.DATA_PARALLEL and call.args:
            on_one = partial(_on_one_gpu, local_rank=facts.our("local_rank"))
            if not cst.ensure_type(on_one(call), cst.Call).deep_equals(call):
                why = "this rank's GPU alone; saved files keep the names of its parameters"
                yield Edit(call, why, on_one)
        elif name in libraries.PARALLEL_WRAPPERS and call.args:
            why = "the script wraps the model once, when training starts"
            if isinstance(statement, cst.SimpleStatementLine) and _rebinds(statement, call):
                yield Drop(statement, why)
            else:
                yield Edit(
                    call, why, lambda c: cst_nodes.parenthesised(cst.ensure_type(c, cst.Call).args[0].value)
                )


def _of_ranks(facts: Facts, *, keeps_ranks: bool) -> Iterator[Finding]:
    """Tell the notebook of one process wherever it asks for ranks; what only rank 0 was to do stays rank 0's."""
    for call in ranks.collectives(facts):
        why = f"`{cst_nodes.one_line(call)}` exchanges values between processes of the notebook's own; nb2ddp converts"
        instead = "Write what one process has here, or start this code with torchrun as it is"
        yield Decline(f"{why} what one process does. {instead}", call)
    asked = ranks.questions(facts)
    if keeps_ranks:
        of_ranks = (node for node, told in asked.items() if told in ("0", "1"))
        early = (node for node in of_ranks if not facts.is_after_training(node))
        for node in (*early, *ranks.variables(facts)):
            why = f"`{cst_nodes.one_line(node)}` asks for ranks, which are the Trainer's own where it generates or its"
            yield Decline(f"{why} model is sharded; write what one process has here", node)
    yield from (Edit.to(node, "each rank runs what one process does", told) for node, told in asked.items())
    for test in facts.nodes(cst.If) if asked else ():
        if _may_hold(asked, test.test) and _is_for_rank_0(facts, test) and called_by_all(facts, test):
            yield Gate(test, "rank-zero-then-wait", "only rank 0 does this, as in the notebook")


def _may_hold(asked: Mapping[cst.CSTNode, str], test: cst.BaseExpression) -> bool:
    """Return whether no part of a test is told False: ``dist.is_available() and dist.is_initialized()``."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        return _may_hold(asked, test.left) and _may_hold(asked, test.right)
    return asked.get(test) != "False"


def _is_for_rank_0(facts: Facts, test: cst.If) -> bool:
    """Return whether a test of the rank is around a call that may write, and nothing that another rank needs."""
    if test.orelse is not None or facts.is_after_training(test) or facts.statement(test) is not test:
        return False
    does = [call for call in facts.calls_in(test.body) if not _only_shows(facts, call)]
    asks = facts.is_made_of(test.test, frozenset(ranks.questions(facts)))
    parts = parts_ranks(facts, test) or (facts.scope(test) is None and facts.binds_in(test))
    return bool(does) and asks and not (parts or facts.runs(test, facts.is_for_all))


def _only_shows(facts: Facts, call: cst.Call) -> bool:
    meets = facts.qualified(call.func) in (JOINS, LEAVES, _BARRIER)
    return meets or facts.shows(call) or facts.method(call) in ("format", "join", "item")


def _unwrapped(facts: Facts, *, keeps_wrapper: bool) -> Iterator[Finding]:
    """Replace ``model.module`` by ``model`` where it is no longer wrapped."""
    removed = libraries.PARALLEL_WRAPPERS - (libraries.DATA_PARALLEL if keeps_wrapper else frozenset())
    for name in facts.name_loads:
        around = facts.parent(name)
        if not isinstance(around, cst.Attribute) or around.attr.value != "module":
            continue
        made = (binding.value for binding in facts.bindings(name.value))
        if any(isinstance(value, cst.Call) and facts.qualified(value.func) in removed for value in made):
            yield Edit.to(around, "nothing is wrapped around it", name.value)


def _rebinds(statement: cst.SimpleStatementLine, call: cst.Call) -> bool:
    """Match ``model = DDP(model)``, which can be removed as a whole."""
    match statement.body:
        case [cst.Assign(targets=[target], value=value)] if value is call:
            return cst_nodes.code_of(target.target) == cst_nodes.code_of(call.args[0].value)
    return False


def _on_one_gpu(node: cst.CSTNode, local_rank: str) -> cst.CSTNode:
    """Give DataParallel one GPU, with which it calls its module as it is."""
    assert isinstance(node, cst.Call)
    named = ("module", "device_ids")
    kept = [a for a in node.args if a is node.args[0] or (a.keyword and a.keyword.value in named)]
    kept[-1] = kept[-1].with_changes(comma=node.args[-1].comma)
    return cst_nodes.with_keyword(node.with_changes(args=kept), "device_ids", f"[{local_rank}]")
