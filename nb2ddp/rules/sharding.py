"""Let Unsloth shard the model over the ranks, with `--strategy fsdp`; decline what that cannot do.

Each rank holds a share of every layer, and gathers a layer while it computes with it (FSDP2). From the Trainer on,
the model is nowhere whole: what generates with it or saves it runs on every rank, and the other ranks end after
the last such line. Unsloth 2026.10.8 or newer does the sharding, in SFT and continued pretraining; merging and
GGUF need a run of their own, from the adapter that is saved.

.. code-block:: diff

     # --strategy fsdp
     from unsloth import FastLanguageModel
     from trl import SFTTrainer
     model, tokenizer = FastLanguageModel.from_pretrained("m")
     trainer = SFTTrainer(model)
     trainer.train()
    -model.save_pretrained("lora")
    +ddp.save_shards(trainer, "lora")
     tokenizer.save_pretrained("lora")
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.installs import keeps_below, pins
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Decline, Edit, Finding, Rule
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes

_INSTEAD = "use --strategy ddp, or --strategy balanced if the model does not fit one GPU"
_TRAINERS = frozenset({"SFTTrainer", "UnslothTrainer"})
# What a sharded model tells without its weights.
_TELLING = frozenset("config device dtype generation_config name_or_path peft_config training".split())
_SETTING = frozenset("eval train print_trainable_parameters num_parameters".split())
_PREPARING = frozenset({"for_inference", "for_training"})
_SHOWING = frozenset({"print", "display", "type", "id"})
# Optimizers that need whole matrices, or that Unsloth refuses for shards.
_OPTIMIZERS = ("galore", "apollo", "lion", "ademamix", "paged_lion", "paged_ademamix")
# Keywords that Unsloth refuses with FSDP2, or that have not been shown to train the same run.
_REFUSED = {
    "fast_inference": "vLLM needs the whole model on one GPU",
    "load_in_8bit": "8-bit weights stay whole on each GPU",
    "offload_embedding": "Unsloth does not shard a model whose embedding it keeps in main memory",
    "offload_layers": "Unsloth does not shard a model whose layers it keeps in main memory",
    "model_init": "a model that the Trainer makes itself would not be sharded",
    "optimizers": "an optimizer that is made before the Trainer holds parameters from before sharding",
    "optimizer_cls_and_kwargs": "this has not been shown to train the same run",
    "q_galore_config": "Q-GaLore projects whole matrices",
    "parallelism_config": "it asks Accelerate for another layout",
    "save_on_each_node": "the first rank alone gathers what is saved",
    "fsdp": "it asks Accelerate for a sharding of its own",
    "fsdp_config": "it asks Accelerate for a sharding of its own",
    "deepspeed": "it asks DeepSpeed for a sharding of its own",
}


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    if options.strategy != "fsdp" or facts.last_collective is None:
        return
    if not facts.uses_unsloth:
        yield Decline(
            f"--strategy fsdp shards the model with Unsloth, which this notebook does not use; {_INSTEAD}"
        )
        return
    if keeps_below(pins(facts, "unsloth"), libraries.UNSLOTH_SHARDS):
        yield Decline(
            f"the notebook installs an Unsloth before {libraries.UNSLOTH_SHARDS}, which cannot shard a model; raise "
            "that version, or use --strategy ddp"
        )
    trainers = [call for call in facts.live_calls if facts.is_trainer_class(call.func)]
    yield from _other_training(facts, trainers)
    for call in facts.live_calls:
        yield from _refused(facts, call)
    for node in _uses(facts):
        yield from _use(facts, node, trainers)


def _other_training(facts: Facts, trainers: list[cst.Call]) -> Iterator[Decline]:
    """Decline what trains otherwise than with one Trainer of a kind that was shown to train the same run."""
    for call in facts.live_calls:
        if facts.method(call) == "backward" and facts.is_collective(call):
            yield Decline(f"Unsloth shards a model in a Trainer, not in a training loop; {_INSTEAD}", call)
    for call in trainers:
        name = facts.qualified(call.func).rpartition(".")[2]
        if name not in _TRAINERS:
            yield Decline(
                f"{name} has not been shown to train the same run with a sharded model; {_INSTEAD}", call
            )
    for call in trainers[1:]:
        yield Decline(f"a second Trainer would get a model that is sharded already; {_INSTEAD}", call)


def _refused(facts: Facts, call: cst.Call) -> Iterator[Decline]:
    if not (facts.loads_model(call) or facts.kind(call) in ("trainer", "arguments")):
        return
    for keyword, why in _REFUSED.items():
        _, node = facts.argument(call, keyword)
        value = facts.value(node) or node
        if node is not None and cst_nodes.code_of(value or node) not in ("False", "None", "0"):
            yield Decline(f"{keyword} does not go with --strategy fsdp: {why}; {_INSTEAD}", call)
    optimizer = cst_nodes.string_value(facts.value(facts.argument(call, "optim")[1])) or ""
    if facts.kind(call) == "arguments" and optimizer.startswith(_OPTIMIZERS):
        yield Decline(f"{optimizer} needs whole matrices, not shards; take adamw_8bit or adamw_torch", call)
    if facts.method(call) != "from_pretrained":
        return
    loader = facts.qualified(call.func).rpartition(".")[0].rpartition(".")[2]
    if loader != "FastLanguageModel" and not facts.is_after_training(call):
        yield Decline(
            f"{loader} has not been shown to train the same run with a sharded model; {_INSTEAD}", call
        )
    elif libraries.has_experts(facts.loaded_name(call)):
        yield Decline(
            f"a model with experts has not been shown to train the same run sharded; {_INSTEAD}", call
        )


def _uses(facts: Facts) -> Iterator[cst.Name | cst.Attribute]:
    """Yield where the sharded model is read: a name, or ``trainer.model``."""
    for name in facts.name_loads:
        if not facts.is_dead(name) and facts.is_sharded(name):
            yield name
    for attribute in facts.attributes:
        if not facts.is_dead(attribute) and facts.is_sharded(attribute):
            yield attribute


def _use(facts: Facts, node: cst.Name | cst.Attribute, trainers: list[cst.Call]) -> Iterator[Finding]:
    """Keep a use that needs no weights, or that every rank may make; save from shards; decline the rest."""
    parent = facts.parent(node)
    match parent:
        case cst.Attribute(attr=cst.Name(value=name)) if parent.value is node:
            call = facts.parent(parent)
            if not isinstance(call, cst.Call) or call.func is not parent:
                if name not in _TELLING:
                    yield _declined(f".{name}", node)
            elif name == "save_pretrained":
                yield from _saved(facts, call)
            elif name not in libraries.GATHERING_METHODS | _SETTING:
                yield _declined(f".{name}()", node)
        case cst.Arg():
            call = facts.parent(parent)
            assert isinstance(call, cst.Call)
            if not _may_take(facts, call):
                yield _declined(f" in {cst_nodes.code_of(call.func)}(...)", node)
        case cst.Assign() | cst.Del() | cst.Expr() | cst.Return() | cst.Element():
            pass
        case _:
            yield _declined("", node)


def _may_take(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call may get a sharded model; what functions of the notebook do with it is looked at there."""
    name = facts.qualified(call.func)
    return (
        (name.partition(".")[0] in libraries.UNSLOTH_PACKAGES and facts.method(call) in _PREPARING)
        or name in _SHOWING
        or facts.is_trainer_class(call.func)
        or bool(facts.called_functions(call))
    )


def _declined(use: str, node: cst.CSTNode) -> Decline:
    return Decline(
        f"this use of the model ({cst_nodes.code_of(node)}{use}) needs it whole, and with --strategy fsdp each rank "
        "holds a share; delete it, and do it in a run of its own from what save_pretrained() has saved",
        node,
    )


def _saved(facts: Facts, call: cst.Call) -> Iterator[Finding]:
    """Save from the shards of all ranks. Only a folder can be given."""
    folder = next(
        (a.value for a in call.args if a.keyword is None or a.keyword.value == "save_directory"), None
    )
    if len(call.args) != 1 or folder is None or call.args[0].star:
        yield Decline(
            "with --strategy fsdp save_pretrained() takes a folder alone; delete its other arguments", call
        )
        return
    trained = [facts.trained(train) for train in facts.train_calls]
    trainer = next((t for t in trained if isinstance(t, cst.Name)), None)
    if trainer is None or facts.scope(call) is not facts.scope(trainer):
        yield Decline(
            "with --strategy fsdp the model is saved where its Trainer has a name; move this there", call
        )
        return
    save = helper(facts, "save_shards")

    def from_shards(node: cst.CSTNode) -> cst.CSTNode:
        made = cst.ensure_type(node, cst.Call)
        first = cst.Arg(
            cst_nodes.expression(trainer.value), comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        )
        only = made.args[0].with_changes(keyword=None, equal=cst.MaybeSentinel.DEFAULT)
        return made.with_changes(func=cst_nodes.expression(save), args=[first, only])

    yield Edit(call, "every rank gives its shards, rank 0 writes", from_shards)


rule = Rule("sharding", __doc__, find)
