"""The init block stands before the first heavy import, and after the lines that set the environment.

Each process must know its GPU before anything touches CUDA; variables such as PYTORCH_CUDA_ALLOC_CONF must
be set before torch is imported at all.

.. code-block:: diff

     import os
     os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    +__nb2ddp_init__
     from unsloth import FastLanguageModel
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp import cstkit, knowledge
from nb2ddp.facts import Facts
from nb2ddp.rewrite import Drop, Finding, Insert, Need, Options, Rule
from nb2ddp.shell import shell_calls

MARKER = "__nb2ddp_init__"


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    shells = {facts.top_statement(s.call): s for s in shell_calls(facts)}
    sets_environment = False
    if facts.uses_unsloth:
        yield Need("unsloth")
    for statement in facts.top_statements:
        if _is_future(statement):
            yield Need("from __future__", cstkit.code_of(statement).strip())
            yield Drop(statement, "a __future__ import must be the first statement of a script")
            continue
        shell = shells.get(statement)
        if shell is not None and (shell.is_install or shell.name in ("env", "set_env")):
            sets_environment |= not shell.is_install
            continue
        if shell is not None or not _is_light(facts, statement):
            if sets_environment:
                yield Insert(statement, "before", MARKER, "who am I: rank, device, process group")
            return
        sets_environment |= _touches_environment(facts, statement)


def _is_future(statement: cst.CSTNode) -> bool:
    match statement:
        case cst.SimpleStatementLine(body=[cst.ImportFrom(module=cst.Name(value="__future__"))]):
            return True
        case _:
            return False


def _touches_environment(facts: Facts, statement: cst.CSTNode) -> bool:
    code = cstkit.code_of(statement)
    return "environ" in code or "sys.path" in code


def _is_light(facts: Facts, statement: cst.CSTNode) -> bool:
    """Whether a statement only sets the environment or imports what is no heavy package."""
    match statement:
        case cst.SimpleStatementLine(body=parts):
            return all(_is_light(facts, part) for part in parts)
        case cst.Import(names=names):
            return not any(
                cstkit.code_of(a.name).partition(".")[0] in knowledge.HEAVY_PACKAGES for a in names
            )
        case cst.ImportFrom(module=module):
            return module is None or cstkit.code_of(module).partition(".")[0] not in knowledge.HEAVY_PACKAGES
        case cst.Assign() | cst.Expr():
            return _touches_environment(facts, statement) or isinstance(
                statement.value, cst.BaseString | cst.BaseNumber | cst.Name
            )
        case cst.If(body=body, orelse=None):
            return _is_light(facts, body)
        case cst.IndentedBlock(body=parts) | cst.SimpleStatementSuite(body=parts):
            return all(_is_light(facts, part) for part in parts)
        case cst.Pass():
            return True
        case _:
            return False


rule = Rule("init-block", __doc__, find)
