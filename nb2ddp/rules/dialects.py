"""Remove earlier attempts at several GPUs: variables without effect, DDP wraps, arguments that depend on the rank.

Guides recommend to set variables that Unsloth does not read, to wrap the model with DDP and unwrap it again, to
join the process group before Unsloth compiles, and to pass each rank other arguments, which leaves the ranks
waiting for one another. The script does by itself what is needed of these. In a loop of the notebook's, DataParallel
stays, with this rank's GPU alone: the names of parameters in saved files begin with ``module.``, as the notebook's do.
Imports of forks that kept Unsloth's names become imports of Unsloth. Two barriers that let rank 0 load or download
first become ddp_support's own form of it.

.. code-block:: diff

     import torch.distributed as dist
     from trl import SFTConfig
    -dist.init_process_group("nccl")
    -model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])
    -args = SFTConfig("out", save_strategy="steps" if is_main_process else "no")
    +args = SFTConfig("out", save_strategy="steps")
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.ranks import rank_test_above, side
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Decline, Drop, Edit, Finding, Gate, Note, Rule
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement

# Arguments that only forks have.
_SWITCHES = ("enable_multi_gpu", "use_multi_gpu", "auto_device_map", "multi_gpu_config")
_VARIABLES = ("UNSLOTH_ENABLE_MULTIGPU", "UNSLOTH_MULTIGPU", "PANTHERAML_ENABLE_MULTIGPU")
_FORK = "pantheraml"
_FORK_SETTINGS = frozenset({"MultiGPUConfig", "setup_multi_gpu", "cleanup_multi_gpu"})
_FORK_ONLY = frozenset(
    "distributed_context is_distributed_available get_world_size get_rank is_main_process "
    "PantheraMLTPUTrainer MultiTPUConfig".split()
)
_JOINS = "torch.distributed.init_process_group"
_LEAVES = "torch.distributed.destroy_process_group"
_BARRIER = "torch.distributed.barrier"
_OF_A_RANK = frozenset({"local_rank", "disable_tqdm", "log_level"})  # training arguments that may differ
_OURS = "made by nb2ddp"


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for cell in facts.cells:
        if _OURS in cell.source:
            node = cell.module.body[0] if cell.module.body else None
            yield Decline(
                "this is a script that nb2ddp has made already: run it with `nb2ddp run` or torchrun", node
            )
            return
    yield from _switches(facts)
    yield from _fork(facts)
    keeps = options.strategy == "ddp" and _calls_models_itself(facts)
    yield from _by_hand(facts, keeps_wrapper=keeps)
    yield from _unwrapped(facts, keeps_wrapper=keeps)


def _switches(facts: Facts) -> Iterator[Finding]:
    for string in facts.strings:
        if cst_nodes.string_value(string) in _VARIABLES:
            yield Drop(facts.statement(string), "Unsloth does not know this variable; it does nothing")
    for call in facts.live_calls:
        for name in _SWITCHES:
            if facts.keyword(call, name) is not None:
                yield Edit(call, f"Unsloth has no {name}", partial(_without, name=name))


def _without(node: cst.CSTNode, name: str) -> cst.CSTNode:
    assert isinstance(node, cst.Call)
    return cst_nodes.without_keyword(node, name)


def _fork(facts: Facts) -> Iterator[Finding]:
    """Imports from the fork become imports from Unsloth; its settings go."""
    for statement in facts.imports_of(_FORK):
        line = facts.statement(statement)
        if not isinstance(statement, cst.ImportFrom) or isinstance(statement.names, cst.ImportStar):
            yield Edit(line, f"Unsloth in place of {_FORK}", partial(_renamed, module=_FORK))
            continue
        for alias in statement.names:
            name = cst_nodes.code_of(alias.name)
            if name in _FORK_ONLY:
                yield Decline(f"{_FORK}.{name} has no counterpart in Unsloth; remove it", statement)
        yield Edit(statement, f"Unsloth in place of {_FORK}", _from_unsloth)
    for call in facts.live_calls:
        package, _, name = facts.qualified(call.func).partition(".")
        if package == _FORK and name.rpartition(".")[2] in _FORK_SETTINGS:
            line = facts.statement(call)
            if isinstance(line, cst.SimpleStatementLine):
                yield Drop(line, f"a setting of {_FORK}")


def _renamed(node: cst.CSTNode, module: str) -> cst.CSTNode:
    return cst_nodes.statements(cst_nodes.code_of(node).replace(module, "unsloth"))[0]


def _from_unsloth(node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.ImportFrom)
    assert not isinstance(node.names, cst.ImportStar)
    kept = []
    for alias in node.names:
        name = cst_nodes.code_of(alias.name)
        if name in _FORK_SETTINGS:
            continue
        if name.endswith("DistributedTrainer"):
            own = alias.asname or cst.AsName(cst.Name(name))
            alias = alias.with_changes(name=cst.Name("UnslothTrainer"), asname=own)
        kept.append(alias)
    if not kept:
        return cst.Pass()
    kept[-1] = kept[-1].with_changes(comma=node.names[-1].comma)
    return node.with_changes(module=cst.Name("unsloth"), names=kept)


def _calls_models_itself(facts: Facts) -> bool:
    """Return whether there is no trainer and no Accelerator, which would wrap the model once more."""
    return not any(facts.kind(call) in ("trainer", "accelerator") for call in facts.live_calls)


def _by_hand(facts: Facts, *, keeps_wrapper: bool) -> Iterator[Finding]:
    if any(facts.qualified(call.func).endswith("DistributedSampler") for call in facts.live_calls):
        yield Decline(
            "this loop uses DDP with a DistributedSampler already: save it as a script and start that with torchrun"
        )
        return
    first = list(_rank_zero_first(facts))
    for turn in first:
        yield from _in_turn(facts, turn)
    for call in facts.live_calls:
        name = facts.qualified(call.func)
        statement = facts.statement(call)
        if any(facts.contains(end, call) for turn in first for end in turn[:2]):
            continue
        if name == _JOINS and _is_alone(statement):
            yield Drop(statement, "the ranks join later: Unsloth compiles while it loads")
        elif name == _LEAVES and _is_alone(statement):
            yield Drop(statement, "the script leaves the process group after training")
        elif name == _BARRIER and _is_alone(statement):
            if facts.is_after_training(call):
                yield Drop(statement, "rank 0 is alone here")
            elif (test := rank_test_above(facts, call)) is not None:
                yield Decline(
                    f"barrier() stands below `{cst_nodes.one_line(test)}`, which differs between "
                    "ranks; write one barrier() to which all ranks come",
                    call,
                )
            else:
                wait = f"{helper(facts, 'from_all_ranks')}(None)"
                yield Edit.to(call, "waits without a process group", wait)
        elif keeps_wrapper and name in libraries.DATA_PARALLEL and call.args:
            on_one = partial(_on_one_gpu, local_rank=facts.our("local_rank"))
            if not cst.ensure_type(on_one(call), cst.Call).deep_equals(call):
                why = "this rank's GPU alone; saved files keep the names of its parameters"
                yield Edit(call, why, on_one)
        elif name in libraries.PARALLEL_WRAPPERS and call.args:
            if isinstance(statement, cst.SimpleStatementLine) and _rebinds(statement, call):
                yield Drop(statement, "the script wraps the model once, when training starts")
            else:
                yield Edit(call, "the script wraps the model once, when training starts", _first_argument)
        elif facts.kind(call) in ("arguments", "trainer"):
            for argument in call.args:
                yield from _by_rank(facts, argument)


_Turn = tuple[
    Statement, Statement, list[Statement]
]  # the barrier before, that behind, and what stands between


def _rank_zero_first(facts: Facts) -> Iterator[_Turn]:
    """Find ``if rank != 0: barrier()`` and, below it, ``if rank == 0: barrier()``: rank 0 goes first between them."""
    before: Statement | None = None
    for call in facts.live_calls:
        if facts.qualified(call.func) != _BARRIER or not _is_alone(facts.statement(call)):
            continue
        block = facts.parent(facts.statement(call))
        test = facts.parent(block) if block is not None else None
        if not isinstance(test, cst.If) or len(test.body.body) != 1 or test.orelse is not None:
            continue
        passes = side(facts, test.test)
        if passes == "others":
            before = test
        elif passes == "main" and before is not None and facts.parent(before) is facts.parent(test):
            around = facts.parent(test)
            body = around.body if isinstance(around, cst.Module | cst.IndentedBlock) else ()
            inside = [s for s in body if facts.order(before) < facts.order(s) < facts.order(test)]
            yield before, test, [s for s in inside if isinstance(s, Statement)]
            before = None


def _in_turn(facts: Facts, turn: _Turn) -> Iterator[Finding]:
    """Let rank 0 go first by the script's own means, which need no process group."""
    before, behind, inside = turn
    if any(facts.runs(s, facts.needs_all) for s in inside):
        yield Decline(
            "the other ranks wait here for rank 0, and rank 0 waits for them in training below", before
        )
        return
    calls = [c for c in facts.live_calls if any(facts.contains(s, c) for s in inside)]
    own = [call for call in calls if not (_only_reads(facts, call) or _is_cached(facts, call))]
    if own:
        yield Decline(
            "what stands between these barriers may write, draw or start something on every rank; take the barriers "
            "away, since the script lets rank 0 download first by itself",
            own[0],
        )
        return
    yield Drop(before, "rank 0 goes first by ddp_support, which needs no process group")
    for statement in inside:
        yield Gate(statement, "main-first", "rank 0 goes first, as between the notebook's barriers")
    yield Drop(behind, "rank 0 goes first by ddp_support, which needs no process group")


def _only_reads(facts: Facts, call: cst.Call) -> bool:
    return facts.qualified(call.func).rpartition(".")[2] in libraries.READING_FUNCTIONS


def _is_cached(facts: Facts, call: cst.Call) -> bool:
    """Match what stands below ``if not os.path.exists(...)``: the other ranks find what rank 0 has made."""
    tests = [parent.test for parent in facts.parents(call) if isinstance(parent, cst.If)]
    return any("exists" in cst_nodes.code_of(test) for test in tests)


def _unwrapped(facts: Facts, *, keeps_wrapper: bool) -> Iterator[Finding]:
    """Replace ``model.module`` by ``model`` where it is no longer wrapped."""
    removed = libraries.PARALLEL_WRAPPERS - (libraries.DATA_PARALLEL if keeps_wrapper else frozenset())
    for name in facts.name_loads:
        around = facts.parent(name)
        if not isinstance(around, cst.Attribute) or around.attr.value != "module":
            continue
        wraps = [
            binding
            for binding in facts.bindings(name.value)
            if isinstance(binding.value, cst.Call) and facts.qualified(binding.value.func) in removed
        ]
        if wraps:
            yield Edit.to(around, "nothing is wrapped around it", name.value)


def _is_alone(statement: cst.CSTNode) -> bool:
    match statement:
        case cst.SimpleStatementLine(body=[cst.Expr(value=cst.Call())]):
            return True
        case _:
            return False


def _rebinds(statement: cst.SimpleStatementLine, call: cst.Call) -> bool:
    """Match ``model = DDP(model)``, which can be removed as a whole."""
    match statement.body:
        case [cst.Assign(targets=[target], value=value)] if value is call:
            return cst_nodes.code_of(target.target) == cst_nodes.code_of(call.args[0].value)
        case _:
            return False


def _first_argument(node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.Call)
    return cst_nodes.parenthesised(node.args[0].value)


def _on_one_gpu(node: cst.CSTNode, local_rank: str) -> cst.CSTNode:
    """Give DataParallel one GPU, with which it calls its module as it is."""
    assert isinstance(node, cst.Call)
    kept = []
    for place, argument in enumerate(node.args):
        name = argument.keyword.value if argument.keyword is not None else ""
        if name in ("module", "dim", "device_ids") or (place == 0 and not name):
            kept.append(argument)
        elif place == 3 and not name:
            equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
            kept.append(argument.with_changes(keyword=cst.Name("dim"), equal=equal))
    kept[-1] = kept[-1].with_changes(comma=node.args[-1].comma)
    return cst_nodes.with_keyword(node.with_changes(args=kept), "device_ids", f"[{local_rank}]")


def _by_rank(facts: Facts, argument: cst.Arg) -> Iterator[Finding]:
    """Give all ranks rank 0's value of a training argument that differs between ranks."""
    value = argument.value
    if argument.keyword is None or argument.keyword.value in _OF_A_RANK or not isinstance(value, cst.IfExp):
        return
    passes = side(facts, value.test)
    if passes and isinstance(value.test, cst.BooleanOperation):
        yield Note(
            "a training argument depends on the rank, which can leave ranks waiting; pass all ranks the same value",
            value,
        )
    elif passes in ("main", "others"):
        yield Edit(value, "every rank needs the same arguments", _body if passes == "main" else _otherwise)


def _body(node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.IfExp)
    return node.body


def _otherwise(node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.IfExp)
    return node.orelse


rule = Rule("dialects", __doc__, find, balanced=True)
