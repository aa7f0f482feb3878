"""Join the process group after the model is loaded, before the ranks first need one another.

Unsloth compiles while it is imported and while it loads a model; with a process group alive it uses
collectives there, which raised or hung in versions up to 2026.8. Accelerate, which training arguments start,
would join with a timeout of its own.

.. code-block:: diff

     from unsloth import FastLanguageModel
     from trl import SFTConfig, SFTTrainer
     model, tokenizer = FastLanguageModel.from_pretrained("m")
     model = FastLanguageModel.get_peft_model(model, r=16)
    +ddp.init_process_group()  # nb2ddp: join the process group
     trainer = SFTTrainer(model, args=SFTConfig("out"))
     trainer.train()
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Finding, Insert, Note
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    if (place := _place(facts)) is None:
        return
    statement, where = place
    code = f"{helper(facts, 'init_process_group')}()  # nb2ddp: join the process group"
    loaded = "after loading, before anything that" if where == "after" else "before it"
    yield Insert(statement, where, code, f"join the process group {loaded} needs the other ranks")
    for call in facts.live_calls:
        engine = facts.keyword(call, "fast_inference")
        if engine is not None and cst_nodes.code_of(engine) not in ("False", "None"):
            why = "each rank starts a vLLM engine on its own GPU with the memory share given here; that needs"
            instead = "If it does not fit, set fast_inference=False: then no vLLM is started"
            yield Note(f"{why} unsloth_zoo 2026.10.9 or newer. {instead}", call)


def _place(facts: Facts) -> tuple[Statement, Literal["before", "after"]] | None:
    def loads(call: cst.Call) -> bool:
        return facts.loads_model(call) and not facts.is_after_training(call)

    first = next((s for s in facts.top_statements if facts.runs(s, facts.needs_all)), None)
    if first is None:
        return None
    earlier = (s for s in facts.top_statements if facts.order(s) < facts.order(first))
    loading = [statement for statement in earlier if facts.runs(statement, loads)]
    if not facts.runs(first, loads):
        return (loading[-1], "after") if loading else (first, "before")
    # One statement loads and trains: mostly the call of a function.
    if not facts.uses_unsloth:
        return first, "before"
    # Unsloth compiles while it loads, which must come before: look inside.
    joining = [c for c in facts.live_calls if facts.needs_all(c) and not facts.is_after_training(c)]
    before = (c for c in facts.live_calls if loads(c) and facts.order(c) < facts.order(joining[0]))
    here = [call for call in before if facts.scope(call) is facts.scope(joining[0])]
    return (facts.statement(here[-1]), "after") if here else (facts.statement(joining[0]), "before")
