"""Replace GPU 0, written as a number or ``"cuda:0"``, by this rank's GPU.

``"cuda"`` needs no change: after ``torch.cuda.set_device`` it means this rank's GPU. Nor does ``torch.load(path)``:
what was saved from GPU 0, each rank loads to its own, unless a ``map_location`` says otherwise.
CUDA_VISIBLE_DEVICES is set only where the script runs as one process: a mask with one device would put all ranks on
one GPU. So are RANK, WORLD_SIZE and what else torchrun sets: with the notebook's values every rank would be rank 0.

.. code-block:: diff

     import torch
    -batch = batch.to("cuda:0")
    -gpu_stats = torch.cuda.get_device_properties(0)
    +batch = batch.to(f"cuda:{local_rank}")
    +gpu_stats = torch.cuda.get_device_properties(local_rank)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.flow import pairs_of
from nb2ddp.analysis.init_place import first_below
from nb2ddp.analysis.shell_commands import shell_calls
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Decline, Edit, Finding, Note, Rule
from nb2ddp.source import cst_nodes

MASK = "CUDA_VISIBLE_DEVICES"
_OF_A_RANK = libraries.LAUNCH_VARIABLES | {MASK}
_OTHER_GPU = (
    '"{}" names a GPU of another rank, where every rank would put this; write "cuda" for each rank\'s own GPU'
)
# Functions of torch.cuda to which 0 is no device.
_NO_DEVICE = frozenset({"manual_seed", "manual_seed_all", "Event", "GradScaler", "autocast"})
_MASKED = "under torchrun every rank has a GPU of its own; the mask would put all on one"
_LAUNCHED = "torchrun tells each rank this; with the notebook's value it would take itself for another one"
_WHY = dict.fromkeys(_OF_A_RANK, _LAUNCHED) | {MASK: _MASKED}


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    local_rank = facts.our("local_rank")
    for string in facts.strings:
        value = cst_nodes.string_value(string)
        item = facts.parent(string)
        if isinstance(item, cst.DictElement) and item.key is string:
            continue  # the GPU that something was saved from, in map_location
        if value == libraries.GPU_0:
            assert isinstance(string, cst.SimpleString)
            code = f"f{string.quote}cuda:{{{local_rank}}}{string.quote}"
            yield Edit.to(string, "this rank's GPU", code)
        elif value is not None and value.startswith("cuda:") and value[5:].isdigit():
            yield Note(_OTHER_GPU.format(value), string)
    yield from _variables(facts)
    for call in facts.calls:
        for argument in call.args:
            made = facts.bound(argument.value)  # device = 0 if torch.cuda.is_available() else -1
            number = made.body if isinstance(made, cst.IfExp) else argument.value
            is_0 = isinstance(number, cst.Integer) and number.value == "0"
            if is_0 and _is_device(facts, call, argument):
                yield Edit.to(number, "this rank's GPU", local_rank)
    for shell in shell_calls(facts):
        if shell.kind == "line" and shell.name in ("env", "set_env") and (name := _set_by(shell.text)):
            yield from _line(facts, shell.call, name)


def _is_device(facts: Facts, call: cst.Call, argument: cst.Arg) -> bool:
    """Return whether 0, as this argument, means the first GPU."""
    name = facts.qualified(call.func)
    if name.startswith("torch.cuda."):
        return name.rpartition(".")[2] not in _NO_DEVICE
    keyword = argument.keyword.value if argument.keyword is not None else ""
    return name == "torch.device" or keyword == "device" or facts.method(call) in ("cuda", "to")


def _set_by(text: str) -> str | None:
    """Return which variable of a rank ``%env`` with this text sets; with the bare name it only shows it."""
    name = re.split(r"[\s=]", text, maxsplit=1)[0]
    return name if name in _OF_A_RANK and name != text else None


def _variables(facts: Facts) -> Iterator[Finding]:
    """Set and take away a rank's variables only outside torchrun, and read a mask that may not be set."""
    for user, name, reads in facts.environment(*_OF_A_RANK):
        is_item = isinstance(user, cst.Subscript)
        if not reads and (is_item or isinstance(facts.parent(user), cst.Expr)):
            yield from _line(facts, user, name)
        elif reads and isinstance(user, cst.Subscript) and name == MASK:
            owner = cst_nodes.code_of(user.value)
            key = cst_nodes.code_of(user)[len(owner) + 1 : -1]
            yield Edit.to(user, "under torchrun the mask need not be set", f"{owner}.get({key})")
    for call in facts.live_calls:
        if facts.qualified(call.func) == "os.environ.update":
            given = [*pairs_of(call), *(pair for argument in call.args for pair in pairs_of(argument.value))]
            for name in (name for name, _ in given if name in _OF_A_RANK):
                why = f'set {name} on a line of its own, os.environ["{name}"] = ...: {_WHY[name]}'
                yield Decline(why, call)


def _line(facts: Facts, node: cst.CSTNode, name: str) -> Iterator[Finding]:
    """Yield edits that run the line of ``node`` only outside torchrun; parts of ``a; b`` have been split."""
    statement = facts.statement(node)
    if not isinstance(statement, cst.SimpleStatementLine):
        return
    why = "under torchrun each rank has its own GPU" if name == MASK else "torchrun sets it"
    yield Edit(statement, _WHY[name], partial(_line_outside_torchrun, test=_test(facts, node), why=why))


def _test(facts: Facts, node: cst.CSTNode) -> str:
    """Return a test that is true under plain ``python``: the init block takes torchrun's variables away."""
    first = first_below(facts)
    if first is not None and facts.order(node) >= facts.order(first):
        return f"{facts.our('world_size')} == 1"
    return f'{facts.our("os")}.environ.get("WORLD_SIZE", "1") == "1"'


def _line_outside_torchrun(node: cst.CSTNode, test: str, why: str) -> cst.CSTNode:
    assert isinstance(node, cst.SimpleStatementLine)
    return cst_nodes.block_under(f"if {test}:", [node], f"nb2ddp: {why}")


rule = Rule("device-literals", __doc__, find)
