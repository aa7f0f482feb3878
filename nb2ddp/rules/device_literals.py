"""GPU 0, written out, is this rank's GPU.

``"cuda"`` needs no change: after ``torch.cuda.set_device`` it means this rank's GPU. CUDA_VISIBLE_DEVICES
counts under plain ``python`` only: a mask that leaves one device makes every rank share it.

.. code-block:: diff

     import torch
    -batch = batch.to("cuda:0")
    -gpu_stats = torch.cuda.get_device_properties(0)
    +batch = batch.to(f"cuda:{local_rank}")
    +gpu_stats = torch.cuda.get_device_properties(local_rank)
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp import cstkit
from nb2ddp.facts import Facts
from nb2ddp.rewrite import Edit, Finding, Note, Options, Rule
from nb2ddp.shell import shell_calls


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    local_rank = facts.our("local_rank")
    for string in facts.strings:
        value = cstkit.string_value(string)
        if value == "cuda:0":
            code = f'f"cuda:{{{local_rank}}}"'
            yield Edit(string, "this rank's GPU", lambda _: cstkit.expression(code))
        elif value is not None and value.startswith("cuda:") and value[5:].isdigit():
            yield Note(f'"{value}" names a GPU of another rank', string)
        elif value == "CUDA_VISIBLE_DEVICES":
            yield from _mask(facts, string)
    for call in facts.calls:
        is_device_call = facts.qualified(call.func).startswith("torch.cuda.") or facts.method(call) == "cuda"
        for argument in call.args:
            second = facts.qualified(call.func) == "torch.device" and argument is not call.args[0]
            if (
                isinstance(argument.value, cst.Integer)
                and argument.value.value == "0"
                and (is_device_call or second)
            ):
                yield Edit(argument.value, "this rank's GPU", lambda _: cst.Name(local_rank))
    for shell in shell_calls(facts):
        if shell.kind == "line" and shell.name in ("env", "set_env") and "CUDA_VISIBLE_DEVICES" in shell.text:
            yield from _mask(facts, shell.call)


def _mask(facts: Facts, node: cst.CSTNode) -> Iterator[Finding]:
    statement = facts.statement(node)
    if not isinstance(statement, cst.SimpleStatementLine) or not isinstance(
        statement.body[0], cst.Assign | cst.Expr
    ):
        return
    header = f"if {facts.our('world_size')} == 1:"
    yield Edit(
        statement,
        "under torchrun every rank has a GPU of its own; the mask would put all on one",
        lambda node: cstkit.block_under(header, [node], "nb2ddp: under torchrun each rank has its own GPU"),  # type: ignore[list-item]
    )


rule = Rule("device-literals", __doc__, find)
