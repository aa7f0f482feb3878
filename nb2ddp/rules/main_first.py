"""Prepare data on rank 0 first; the other ranks then read its cache.

So it does where a function looks for a file, and reads it or computes and saves what is in it.
The other ranks wait on torchrun's key-value store, not in a collective, so a long tokenization cannot time out.
The same block replaces the ``main_process_first()`` of an Accelerator, which sees one process in the script, and of
training arguments, whose ranks wait in a collective. Where the block looks at files, the rule file-guards decides.

.. code-block:: diff

     from datasets import load_dataset
     from trl import SFTTrainer
    -dataset = load_dataset("d", split="train")
    -dataset = dataset.map(to_text, batched=True)
    +with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    +    dataset = load_dataset("d", split="train")
    +    dataset = dataset.map(to_text, batched=True)
     trainer = SFTTrainer(model, train_dataset=dataset)
     trainer.train()
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import cast

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis import files, frameworks, rank_zero_work
from nb2ddp.analysis.common_paths import called_by_all
from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.deferring import deferring
from nb2ddp.rewriting.findings import Edit, Finding, Gate
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    own: set[cst.CSTNode] = set()  # statements that let rank 0 go first or alone already
    for call in facts.live_calls:
        if facts.method(call).endswith("main_process_first") and isinstance(facts.parent(call), cst.WithItem):
            block = facts.statement(call)
            if not files.looks_at_files(facts, block) or facts.runs(block, facts.fills_cache):
                own.add(block)
                yield Edit.to(call, "rank 0 goes first", f"{helper(facts, 'main_process_first')}()")
    own.update(*rank_zero_work.generation(facts))
    reads_back, writes = (partial(of, facts) for of in (rank_zero_work.reads_back, rank_zero_work.writes))
    keeps, run = partial(_keeps_result, facts), dict[cst.Call, None]()  # below a gate that writes
    hooks = (f.body.body for f in facts.nodes(cst.FunctionDef) if f.name.value.endswith("_dataloader"))
    queue = [*facts.top_statements, *(s for body in hooks for s in body if isinstance(s, Statement))]
    for statement in queue:
        saves = facts.runs(statement, keeps)  # also what a library trains: the others find it
        late = facts.is_after_training(statement) or not (saves or facts.runs(statement, facts.fills_cache))
        if late or not own.isdisjoint((statement, *facts.parents(statement))):
            continue
        inside = isinstance(statement, cst.If) and cst_nodes.code_of(statement.test).startswith("__name__ ==")
        inside |= facts.runs(statement, facts.needs_all)
        if inside or (not saves and frameworks.trains_whole(facts, statement)):
            blocks: list[cst.BaseSuite] = facts.nodes(cst.IndentedBlock, within=statement, own=True)
            blocks += [f.body for call in facts.calls_in(statement) for f in facts.called_functions(call)]
            queue += [s for b in blocks for s in b.body if isinstance(s, Statement) and s not in queue]
        elif called_by_all(facts, statement):
            own.add(statement)
            if facts.runs(statement, reads_back):
                yield Gate(statement, "in-turn", "the ranks prepare the data in turn, for they read it back")
            else:
                yield Gate(statement, "main-first", "rank 0 prepares the data, the others read its cache")
            if facts.runs(statement, writes):
                facts.runs(statement, run.setdefault)
    looks = dict.fromkeys(look for call in run if (look := _kept_look(facts, call)) is not None)
    for look in looks:
        if looks.keys().isdisjoint(facts.parents(look)):
            yield from deferring(facts, look, "rank 0 may have made files when the others look")


def _kept_look(facts: Facts, call: cst.Call) -> cst.BaseExpression | None:
    """Return ``len(os.listdir(x))`` whose value is read outside of tests, too; of ``all(exists(f) for f in x)`` all."""
    line, loops = facts.statement(call), cast("list[cst.BaseComp]", list(facts.loops_to(call)))
    is_line = isinstance(line, cst.SimpleStatementLine) and all(facts.contains(line, loop) for loop in loops)
    if not (is_line and files.is_file_test(facts, call) and called_by_all(facts, call)):
        return None  # a branch, or a loop of which a rank may go round more often
    items = [getattr(loop, name, None) for loop in loops for name in ("elt", "key", "value")]
    calls = [c for item in items if item for c in facts.calls_in(item)]
    names = (facts.qualified(c.func) for c in calls if not files.is_file_test(facts, c))
    plain = all(name.startswith(("len", "os.path.")) for name in names)
    if not plain or any(isinstance(item, cst.Lambda) for item in items):
        return None  # what is made of each file may be large, or nothing that can be sent
    uses = (use for b in facts.bindings_in(line) for use in facts.loads_of(b.name))
    kept = any((of := facts.around(use, cst.If)) is None or not facts.contains(of.test, use) for use in uses)
    whole = [call, *loops][-1]  # no rank can send a generator
    sent = facts.around(whole, cst.Call) if isinstance(whole, cst.GeneratorExp) else whole
    return sent if kept or facts.nodes(cst.Return, within=line) else None


def _keeps_result(facts: Facts, call: cst.Call) -> bool:
    """Match the call of a function that looks for a file, then reads what is in it, or makes and saves that."""
    for function in facts.called_functions(call):
        calls = facts.calls_in(function.body)
        looks = [call for call in calls if files.is_file_test(facts, call)]
        paths = {cst_nodes.code_of(cst_nodes.given(c, 0) or facts.owner(c) or c) for c in looks}
        later = (c for c in calls if looks and facts.order(c) > facts.order(looks[0]))
        uses = (c for c in later if paths & {cst_nodes.code_of(a.value) for a in c.args})
        own = [c for c in uses if facts.qualified(c.func) not in libraries.OF_PATHS_ALONE]
        draws = any("rand" in facts.qualified(c.func) for c in calls)  # so would every rank, to go on alike
        if not draws and {rank_zero_work.writes(facts, c) for c in own} == {True, False}:
            return True
    return False
