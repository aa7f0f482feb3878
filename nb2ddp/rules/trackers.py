"""Let rank 0 alone write to TensorBoard and MLflow.

Each rank would leave a file or a run of its own, and every curve would be shown several times. W&B is disabled on
the other ranks, whatever mode the notebook names, and they get what is read of its artifacts. MLflow cannot be
disabled: the other ranks get an empty store, which is removed at the end.

.. code-block:: diff

     import mlflow
     from trl import SFTTrainer
    -mlflow.set_tracking_uri("http://localhost:5000")
    +mlflow.set_tracking_uri(ddp.tracking_uri("http://localhost:5000"))
     mlflow.start_run()
     trainer = SFTTrainer(model)
     trainer.train()
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis import modules
from nb2ddp.analysis.common_paths import called_by_all
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.init_place import first_below
from nb2ddp.options import Options
from nb2ddp.rewriting.deferring import deferring
from nb2ddp.rewriting.findings import Edit, Finding, Insert, Note
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source.cells import Statement, last_name


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    first, several = first_below(facts), (facts, *modules.imported(facts))
    named = {own.qualified(node) for own in several for node in (*own.name_loads, *own.attributes)}
    for name in sorted(named & libraries.EVENT_WRITERS):
        assert isinstance(first, Statement)  # which imports it, or comes before
        code = f'{helper(facts, "event_writer")}("{name}")  # nb2ddp: only rank 0 writes event files'
        yield Insert(first, "before", code, "only rank 0 writes event files")
    chosen = (c for c in facts.live_calls if facts.qualified(c.func) in libraries.CHOOSES_MLFLOW_STORE)
    given = (call.args[0].value for call in chosen if len(call.args) == 1)
    for store in (*given, *_assigned(facts, "MLFLOW_TRACKING_URI")):
        yield Edit.inside(store, "only rank 0 writes to this store", helper(facts, "tracking_uri"))
    begun = (call for call in facts.live_calls if facts.qualified(call.func) == "wandb.init")
    modes = (facts.keyword(call, "mode") for call in begun if not facts.is_after_training(call))
    for mode in filter(None, (*modes, *_assigned(facts, "WANDB_MODE"))):  # they win over what the script sets
        yield Edit.choosing(mode, "only rank 0 has a run", helper(facts, "is_main_process"), '"disabled"')
    for c in facts.live_calls:
        if libraries.READS_MLFLOW_STORE.fullmatch(facts.qualified(c.func)) and not facts.is_after_training(c):
            yield Note("ranks other than 0 have an empty MLflow store, and read nothing that is saved", c)
    yield from _of_artifacts(facts)


def _of_artifacts(facts: Facts) -> Iterator[Finding]:
    """Send what is read of an artifact of W&B's run, whether it is resumed, and what a Lightning logger's run has."""
    for read in facts.attributes:
        made, used = facts.value(read.value), facts.parent(read)
        of_run = isinstance(made, cst.Call) and last_name(made.func) == "use_artifact"
        if read.attr.value in ("resumed", "starting_step"):
            of_run = facts.qualified(read.value) == "wandb.run" or facts.comes_from(read, "wandb")
        if last_name(read.value) == "experiment" and facts.called(read) is None:  # of a logger of Lightning's
            of_run = "ightning" in str(facts.origins(read)) and called_by_all(facts, read)
        if not of_run or facts.is_dead(read) or facts.is_after_training(read):
            continue
        if not isinstance(used, cst.Call | cst.AssignTarget) and called_by_all(facts, read):
            yield from deferring(facts, read, "only rank 0 has this run, and all ranks get what it reads")
        elif not (isinstance(used, cst.Call) and facts.fetches_artifact(used)):
            yield Note("only rank 0 has this artifact; attributes and download() go to all, in a cell", read)


def _assigned(facts: Facts, variable: str) -> Iterator[cst.BaseExpression]:
    """Yield what a notebook assigns to a variable of the environment below the init block, which sets it, too."""
    first = first_below(facts)
    for item, _, reads in facts.environment(variable):
        assigned = facts.parent(facts.parent(item) or item)
        is_above = first is None or facts.order(item) < facts.order(first)
        if not (reads or is_above) and isinstance(assigned, cst.Assign) and len(assigned.targets) == 1:
            yield assigned.value
