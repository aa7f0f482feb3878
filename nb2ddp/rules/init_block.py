"""Place the init block: before the first import of a CUDA library, after the lines that set the environment.

Each process must select its GPU before anything touches CUDA; variables such as PYTORCH_CUDA_ALLOC_CONF must be
set before torch is imported at all. ``__nb2ddp_init__`` below marks the place. In the script it becomes the import
of ``ddp_support`` and ``rank, local_rank, world_size = ddp.init()``.

.. code-block:: diff

     import os
     os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    +__nb2ddp_init__
     from unsloth import FastLanguageModel
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis import installs
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.shell_commands import ShellCall, shell_calls
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Drop, Finding, Insert, Need, Rule
from nb2ddp.source import cst_nodes

MARKER = "__nb2ddp_init__"
_ENVIRONMENT_MAGICS = frozenset({"env", "set_env"})


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    shells = {shell.call: shell for shell in shell_calls(facts)}
    step = installs.plan(facts)
    gone = {*step.dropped, *step.leftovers}
    shown = {value for cell in facts.cells if (value := facts.shown(cell)) is not None}
    missing: set[str] = set()  # names that only the setup step binds; the init block imports them again
    sets_environment = False
    for statement in facts.top_statements:
        if _is_future(statement):
            yield Need("from __future__", cst_nodes.code_of(statement).strip())
            yield Drop(statement, "a __future__ import must be the first statement of a script")
            continue
        if statement in gone:
            missing |= facts.binds_in(statement) - {"os"}
            continue
        needs_block = (
            any(facts.contains(statement, value) for value in shown)
            or any(_needs_block(facts, call, shells.get(call)) for call in facts.calls_in(statement))
            or _names_gpu(facts, statement)
            or facts.loads_in(statement) & missing
        )
        if needs_block or not _is_light(facts, statement, shells):
            if sets_environment:
                yield Insert(statement, "before", MARKER, "the init block: this process's rank and GPU")
            return
        missing -= facts.binds_in(statement)
        sets_environment |= _touches_environment(statement)


def _is_future(statement: cst.CSTNode) -> bool:
    match statement:
        case cst.SimpleStatementLine(body=[cst.ImportFrom(module=cst.Name(value="__future__"))]):
            return True
        case _:
            return False


def _needs_block(facts: Facts, call: cst.Call, shell: ShellCall | None) -> bool:
    """Return whether other rules insert a name of the init block here: around writes, commands and tests for files."""
    if shell is not None:
        return not shell.is_install and shell.name not in _ENVIRONMENT_MAGICS | libraries.DISPLAY_MAGICS
    name, method = facts.qualified(call.func), facts.method(call)
    return (
        name in libraries.WRITING_FUNCTIONS | libraries.RUNNING_FUNCTIONS | libraries.FILE_TESTS
        or method in libraries.WRITING_METHODS | libraries.FILE_TEST_METHODS
        or name in ("open", "io.open")
    )


def _names_gpu(facts: Facts, statement: cst.CSTNode) -> bool:
    return any(
        cst_nodes.string_value(string) == libraries.GPU_0
        for string in facts.strings
        if facts.contains(statement, string)
    )


def _touches_environment(statement: cst.CSTNode) -> bool:
    code = cst_nodes.code_of(statement)
    return "environ" in code or "sys.path" in code or "'env'" in code or "'set_env'" in code


def _is_light(facts: Facts, node: cst.CSTNode, shells: Mapping[cst.Call, ShellCall]) -> bool:
    """Return whether a statement only sets the environment or imports packages that are not heavy."""

    def are_light(*parts: cst.CSTNode | None) -> bool:
        return all(_is_light(facts, part, shells) for part in parts if part is not None)

    match node:
        case cst.SimpleStatementLine(body=parts) | cst.IndentedBlock(body=parts):
            return are_light(*parts)
        case cst.SimpleStatementSuite(body=parts):
            return are_light(*parts)
        case cst.Import(names=names):
            return not any(
                cst_nodes.code_of(a.name).partition(".")[0] in libraries.HEAVY_PACKAGES for a in names
            )
        case cst.ImportFrom(module=module):
            return (
                module is None or cst_nodes.code_of(module).partition(".")[0] not in libraries.HEAVY_PACKAGES
            )
        case cst.Expr(value=cst.Call() as call) if call in shells:
            return True
        case cst.Assign() | cst.AugAssign() | cst.Expr():
            return _touches_environment(node) or isinstance(
                node.value, cst.BaseString | cst.BaseNumber | cst.Name
            )
        case cst.Del():
            return _touches_environment(node)
        case cst.If(body=body, orelse=orelse) | cst.For(body=body, orelse=orelse):
            return are_light(body, orelse)
        case cst.Try(body=body, handlers=handlers, orelse=orelse, finalbody=finalbody):
            return are_light(body, *(handler.body for handler in handlers), orelse, finalbody)
        case cst.Else(body=body) | cst.Finally(body=body):
            return are_light(body)
        case _:
            return isinstance(node, cst.Pass)


rule = Rule("init-block", __doc__, find, balanced=True)
