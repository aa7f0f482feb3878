"""Let every rank run Lightning's Trainer as one process does, and divide the calls of what it trains.

A LightningModule is a loop that Lightning runs: each rank goes through the notebook's batches, and the calls of
modules in `training_step` and the like compute this rank's rows and return the outputs of all rows, as in a loop
written by hand. Losses, ``self.log``, callbacks, early stopping and manual optimization see whole batches; rank 0 alone
writes checkpoints and logs. Devices and strategies that mean one process in a notebook become this rank's GPU.

.. code-block:: diff

     import lightning as L
    -trainer = L.Trainer(max_epochs=3, devices=1)
    +trainer = ddp.lightning_trainer(L.Trainer)(max_epochs=3, devices=1)
     trainer.fit(model, loader)
    +ddp.check_replicas()
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Decline, Edit, Finding
from nb2ddp.rewriting.runtime_calls import comparing, helper
from nb2ddp.source import cst_nodes

_UNLIKE = re.compile(r"(?i:fsdp|deepspeed|modelparallel|xla|bagua|colossal|horovod)|^[thi]pu$|^[\[1-9]")
_ALONE = re.compile(r"(?:pytorch_)?lightning\w*\..*\brank_zero_only$")
_FINDS_BATCH = re.compile(r"(?:lightning\.pytorch|pytorch_lightning)\.callbacks\.(?:\w+\.)*BatchSizeFinder$")


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for node in facts.nodes(cst.Decorator, cst.Call):
        function = node.decorator if isinstance(node, cst.Decorator) else node.func
        if _ALONE.match(facts.qualified(function)):
            why = "rank 0 does this while the others wait: what it draws or computes, no other rank does"
            yield Edit.to(function, why, helper(facts, "rank_zero_only"))
    if not facts.lightning_fits:
        return
    for call in facts.live_calls:
        name = facts.qualified(call.func)
        if facts.is_lightning_class(call.func):
            yield from _refused(facts, call)
            why = "every rank runs the Trainer as one process does, and rank 0 writes"
            yield Edit.inside(call.func, why, helper(facts, "lightning_trainer"))
        elif facts.method(call) == "scale_batch_size" or _FINDS_BATCH.match(name):
            why = "this tries batches until one does not fit on the GPU, and ranks that divide it would find another"
            yield Decline(f"{why} one than the notebook: write the number that it has found", call)
        elif name == "torch.compile" and "Lightning" in str([facts.origins(a.value) for a in call.args]):
            why = "this compiles the steps of Lightning's loop, in which the ranks divide the calls of modules: compile"
            yield Decline(f"{why} what they call instead, self.net = torch.compile(self.net)", call)
    for call in facts.lightning_fits:
        yield from comparing(facts, facts.statement(call))


def _refused(facts: Facts, call: cst.Call) -> Iterator[Decline]:
    """Decline a Trainer that is more than one process by itself."""
    for name in ("devices", "gpus", "num_nodes", "num_processes"):
        if _count(facts, facts.keyword(call, name)) > 1:
            why = f"this Trainer starts several processes itself, each with batches of its own ({name}), and nb2ddp "
            why += f"converts what one process trains: with {name}=1 all GPUs train the run of one"
            yield Decline(why, call)
    for name in ("strategy", "accelerator", "tpu_cores", "ipus"):
        value = facts.value(facts.keyword(call, name))
        made = facts.qualified(value.func) if isinstance(value, cst.Call) else cst_nodes.string_value(value)
        made = made or (cst_nodes.code_of(value) if isinstance(value, cst.Integer | cst.List) else "")
        if _UNLIKE.search(made.replace("_", "")):
            why = f"this Trainer's {name} ({made.rpartition('.')[2]}) divides the model or runs elsewhere than on CUDA"
            instead = "nb2ddp converts what one process trains, with a copy of the model on each GPU: ask for one GPU"
            yield Decline(f"{why} GPUs; {instead}", call)


def _count(facts: Facts, node: cst.BaseExpression | None) -> int:
    """Return how many devices an argument names; 1 where it cannot be seen, and for -1 and "auto"."""
    value = facts.value(node)
    if isinstance(value, cst.List | cst.Tuple):
        return len(value.elements)
    text = value.value if isinstance(value, cst.Integer) else cst_nodes.string_value(value) or ""
    return int(text) if text.isdigit() else text.count(",") + 1
