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
from nb2ddp.rewrite import Finding, Gate, Insert, Need, Note, Options, Rule
from nb2ddp.shell import is_install

_WRITES = "one rank writes"


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    last = facts.last_collective
    if last is None:
        return
    alone, shared = _generation(facts)
    generating = alone | frozenset(shared)
    for statement in facts.top_statements:
        if statement in generating:
            yield Gate(statement, "rank-zero", "one rank generates")
        if names := shared.get(statement):
            yield Need("from_main_process")
            made = ", ".join(names)
            value = made if len(names) == 1 else f"({made})"
            code = f"{made} = {facts.our('from_main_process')}(lambda: {value})"
            yield Insert(statement, "after", code, "every rank trains on what rank 0 generated")
    for call in facts.live_calls:
        why = _why_alone(facts, call)
        if why is None or facts.is_after_training(call):
            continue
        statement = facts.statement(call)
        if statement in generating or any(parent in generating for parent in facts.parents(call)):
            continue
        if facts.scope(call) is not None:
            yield from _in_function(facts, call, statement)
            continue
        if _needs_all(facts, statement):
            yield Note("this writes on every rank: the same statement needs all of them", call)
            continue
        if any(facts.is_read_outside(name, statement, until=last) for name in facts.binds_in(statement)) and (
            not isinstance(statement, cst.With)
        ):
            if _maps_file(facts, call):
                yield Need("in_turn")
                yield Gate(statement, "in-turn", "the ranks write one after another")
            else:
                does = "writes" if why == _WRITES else "runs"
                yield Note(f"this {does} on every rank: what it gives back is used later", call)
            continue
        yield Need("wait_for_main_process")
        yield Gate(statement, "rank-zero-then-wait", why)


def _in_function(facts: Facts, call: cst.Call, statement: Statement) -> Iterator[Finding]:
    """A write in a function: what calls it decides.

    Before training the function may read back what it wrote, so the ranks run it one after another. While
    training goes on (a callback, a metric) nobody can wait: rank 0 alone writes.
    """
    if not _writes(facts, call):
        return
    runners = [
        top
        for top in facts.top_statements
        if not facts.is_after_training(top) and facts.runs(top, lambda other: other is call)
    ]
    if not runners or any(_needs_all(facts, top) for top in runners):
        yield Gate(statement, "rank-zero", _WRITES)
        return
    for top in runners:
        if not facts.runs(top, facts.fills_cache):  # main-first sees to these
            yield Need("in_turn")
            yield Gate(top, "in-turn", "the ranks write one after another")


def _needs_all(facts: Facts, statement: Statement) -> bool:
    return facts.runs(statement, facts.is_collective) or facts.runs(statement, facts.joins_group)


def gated_before_training(facts: Facts) -> frozenset[Statement]:
    """Statements that generate before training ends, and those that only handle what was generated."""
    gated, shared = _generation(facts)
    return gated | frozenset(shared)


def _generation(facts: Facts) -> tuple[frozenset[Statement], dict[Statement, list[str]]]:
    """What rank 0 does alone, and what it does for all: statements with the names that all ranks need."""
    last = facts.last_collective
    if last is None:
        return frozenset(), {}

    def generates(call: cst.Call) -> bool:
        return facts.method(call) in knowledge.GENERATING_METHODS

    def needs_all(call: cst.Call) -> bool:
        return facts.is_collective(call) or facts.joins_group(call) or facts.loads_model(call)

    statements = [s for s in facts.top_statements if facts.order(s) <= facts.order(last)]
    gated: set[Statement] = set()
    shared: dict[Statement, list[str]] = {}
    for seed in statements:
        if seed in gated or not facts.runs(seed, generates) or facts.runs(seed, needs_all):
            continue
        chain = _chain(facts, seed, [s for s in statements if facts.order(s) > facts.order(seed)])
        if all(not facts.runs(s, needs_all) for s in chain) and not _escapes(facts, chain):
            gated |= chain
        elif not facts.runs(seed, facts.fills_cache):
            made = facts.binds_in(seed) | facts.changes_in(seed)
            shared[seed] = sorted(name for name in made if facts.is_read_after(name, seed, last))
    return frozenset(gated), shared


def _chain(facts: Facts, seed: Statement, later: list[Statement]) -> set[Statement]:
    """``seed`` and the statements after it that read what it made, directly or not."""
    chain, names = {seed}, set(facts.binds_in(seed) | facts.changes_in(seed))
    for statement in later:
        if facts.loads_in(statement) & names:
            chain.add(statement)
            names |= facts.binds_in(statement) | facts.changes_in(statement)
        else:
            names -= facts.binds_in(statement)
    return chain


def _escapes(facts: Facts, chain: set[Statement]) -> bool:
    """Whether a function defined outside, which every rank may call, reads what the chain made."""
    return any(isinstance(s, cst.FunctionDef | cst.ClassDef) for s in chain)


def _why_alone(facts: Facts, call: cst.Call) -> str | None:
    """Why one rank is to make this call; None where all may."""
    if facts.qualified(call.func) in knowledge.RUNNING_FUNCTIONS:
        text = cstkit.string_value(call.args[0].value) if call.args else None
        return None if text is not None and is_install(text) else "one rank runs it"
    return _WRITES if _writes(facts, call) else None


def _writes(facts: Facts, call: cst.Call) -> bool:
    """Whether a call writes to a file or a service, and not to a buffer of its own."""
    if any(_is_own(facts, argument.value) for argument in call.args):
        return False
    name, method = facts.qualified(call.func), facts.method(call)
    if name in knowledge.WRITING_FUNCTIONS:
        may_exist = facts.keyword(call, "exist_ok")
        return may_exist is None or cstkit.code_of(may_exist) != "True"
    if method in knowledge.WRITING_METHODS:
        assert isinstance(call.func, cst.Attribute)
        if method in knowledge.WRITING_WITH_PATH and not call.args:
            return False
        return facts.kind(call.func.value) not in ("trainer", "accelerator")  # they see to it themselves
    return _maps_file(facts, call) or _opens_to_write(facts, call)


def _opens_to_write(facts: Facts, call: cst.Call) -> bool:
    """``open(path, "w")`` and ``path.open("w")``."""
    is_function = facts.qualified(call.func) in ("open", "io.open")
    if not is_function and facts.method(call) != "open":
        return False
    unnamed = [argument.value for argument in call.args if argument.keyword is None and not argument.star]
    position = 1 if is_function else 0
    given = unnamed[position] if len(unnamed) > position else None
    mode = cstkit.string_value(facts.keyword(call, "mode") or given) or ""
    return len(mode) < 4 and any(letter in mode for letter in "wax")


def _maps_file(facts: Facts, call: cst.Call) -> bool:
    """``numpy.memmap(..., mode="w+")`` and the like make a file and keep it open."""
    makers = ("numpy.memmap", "numpy.lib.format.open_memmap")
    return facts.qualified(call.func) in makers and cstkit.string_value(facts.keyword(call, "mode")) == "w+"


def _is_own(facts: Facts, node: cst.BaseExpression) -> bool:
    """Whether an expression is memory or a temporary file: no other rank can be in its way."""
    if isinstance(node, cst.Attribute):
        return _is_own(facts, node.value)
    if isinstance(node, cst.Name):
        binding = facts.binding(node)
        return binding is not None and isinstance(binding.value, cst.Call) and _is_own(facts, binding.value)
    return isinstance(node, cst.Call) and facts.qualified(node.func) in knowledge.OWN_BUFFERS


rule = Rule("rank-zero", __doc__, find)
