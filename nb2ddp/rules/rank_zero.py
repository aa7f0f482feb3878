"""Before training ends, rank 0 alone writes, pushes and generates.

Two processes that write one file tear it. Generation before training is for the reader: one rank is
enough, and what only it produced stays with it. Training, evaluation and trainer arguments are never
gated by rank: a rank that takes another path leaves the others waiting for ever.

.. code-block:: diff

     from trl import SFTTrainer
    -processor.save_pretrained("start")
    +if is_main_process:  # nb2ddp: one rank writes
    +    processor.save_pretrained("start")
    +wait_for_main_process()
     trainer = SFTTrainer(model)
     trainer.train()
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp import cstkit, knowledge
from nb2ddp.facts import Facts, Statement
from nb2ddp.rewrite import Finding, Gate, Need, Note, Options, Rule


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    if facts.last_collective is None:
        return
    generating = gated_before_training(facts)
    for statement in generating:
        yield Gate(statement, "rank-zero", "one rank generates")
    for call in facts.live_calls:
        if not _writes(facts, call) or facts.is_after_training(call):
            continue
        statement = facts.statement(call)
        if statement in generating or any(parent in generating for parent in facts.parents(call)):
            continue
        if facts.runs(statement, facts.is_collective) or facts.runs(statement, facts.joins_group):
            yield Note("this writes on every rank: the same statement needs all of them", call)
            continue
        bound = facts.binds_in(statement)
        if any(facts.is_read_outside(name, statement) for name in bound) and not _is_file_block(statement):
            yield Note("this writes on every rank: what it gives back is used later", call)
            continue
        in_function = facts.scope(call) is not None
        if not in_function:
            yield Need("wait_for_main_process")
        yield Gate(statement, "rank-zero" if in_function else "rank-zero-then-wait", "one rank writes")


def gated_before_training(facts: Facts) -> frozenset[Statement]:
    """Statements that generate before training ends, and those that only handle what was generated."""
    last = facts.last_collective
    if last is None:
        return frozenset()

    def generates(call: cst.Call) -> bool:
        return facts.method(call) in knowledge.GENERATING_METHODS

    def needs_all(call: cst.Call) -> bool:
        return facts.is_collective(call) or facts.joins_group(call) or facts.loads_model(call)

    statements = [s for s in facts.top_statements if facts.order(s) < facts.order(last)]
    gated: set[Statement] = set()
    for seed in statements:
        if seed in gated or not facts.runs(seed, generates) or facts.runs(seed, needs_all):
            continue
        chain = _chain(facts, seed, [s for s in statements if facts.order(s) > facts.order(seed)])
        if all(not facts.runs(s, needs_all) for s in chain) and not _escapes(facts, chain):
            gated |= chain
    return frozenset(gated)


def _chain(facts: Facts, seed: Statement, later: list[Statement]) -> set[Statement]:
    """``seed`` and the statements after it that read what it made, directly or not."""
    chain, names = {seed}, set(facts.binds_in(seed))
    for statement in later:
        if facts.loads_in(statement) & names:
            chain.add(statement)
            names |= facts.binds_in(statement)
        else:
            names -= facts.binds_in(statement)
    return chain


def _escapes(facts: Facts, chain: set[Statement]) -> bool:
    """Whether a function defined outside, which every rank may call, reads what the chain made."""
    return any(isinstance(s, cst.FunctionDef | cst.ClassDef) for s in chain)


def _writes(facts: Facts, call: cst.Call) -> bool:
    name = facts.qualified(call.func)
    if name in knowledge.WRITING_FUNCTIONS:
        return not any(
            cstkit.code_of(a.value) == "True"
            for a in call.args
            if a.keyword and a.keyword.value == "exist_ok"
        )
    if facts.method(call) in knowledge.WRITING_METHODS:
        return not (isinstance(call.func, cst.Attribute) and facts.kind(call.func.value) == "trainer")
    if name in ("open", "io.open") and len(call.args) > 1:
        mode = cstkit.string_value(call.args[1].value) or ""
        return any(letter in mode for letter in "wax")
    return False


def _is_file_block(statement: Statement) -> bool:
    return isinstance(statement, cst.With)


rule = Rule("rank-zero", __doc__, find)
