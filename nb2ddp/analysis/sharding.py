"""Find what stands against sharding the model of a notebook over the ranks (Unsloth's FSDP2).

The facts that are asked are those of a model that is sharded: `Facts.sharded`.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes

Refusal = tuple[str, cst.CSTNode | None]

_INSTEAD = "use --strategy ddp, or --strategy balanced if the model does not fit one GPU"
# Attributes of a model that need no weights.
_TELLING = frozenset("config device dtype generation_config name_or_path peft_config training".split())
_SETTING = frozenset("eval train print_trainable_parameters num_parameters".split())
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
    "fsdp": "it asks Accelerate for a sharding of its own",
    "fsdp_config": "it asks Accelerate for a sharding of its own",
}
# Methods that need the whole model, whatever holds it.
_WHOLE = frozenset(
    "generate merge_and_unload push_to_hub push_to_hub_gguf push_to_hub_merged save_pretrained save_pretrained_gguf "
    "save_pretrained_merged".split()
)


def refusals(facts: Facts) -> Iterator[Refusal]:
    """Yield why the model cannot be sharded, and the place of the reason if it has one."""
    if not facts.uses_unsloth:
        why = "--strategy fsdp shards the model with Unsloth, which this notebook does not use"
        yield f"{why}; {_INSTEAD}", None
        return
    yield from _other_training(facts, [c for c in facts.live_calls if facts.is_trainer_class(c.func)])
    for call in facts.live_calls:
        yield from _refused(facts, call)
        yield from _parted(facts, call)
    for node in _uses(facts):
        yield from _use(facts, node)


def _other_training(facts: Facts, trainers: list[cst.Call]) -> Iterator[Refusal]:
    """Decline what trains otherwise than with one Trainer of a kind that was shown to train the same run."""
    why = f"Unsloth shards a model in a Trainer, not in a training loop; {_INSTEAD}"
    yield from ((why, call) for call in facts.live_calls if facts.is_backward(call))
    for call in trainers:
        name = facts.qualified(call.func).rpartition(".")[2]
        if name not in ("SFTTrainer", "UnslothTrainer"):
            yield (f"{name} has not been shown to train the same run with a sharded model; {_INSTEAD}", call)
    for call in trainers[1:]:
        yield (f"a second Trainer would get a model that is sharded already; {_INSTEAD}", call)


def _refused(facts: Facts, call: cst.Call) -> Iterator[Refusal]:
    if not (facts.loads_model(call) or facts.kind(call) in ("trainer", "arguments")):
        return
    for keyword, why in _REFUSED.items():
        _, node = facts.argument(call, keyword)
        if node is not None and cst_nodes.code_of(facts.value(node) or node) not in ("False", "None", "0"):
            yield (f"{keyword} does not go with --strategy fsdp: {why}; {_INSTEAD}", call)
    optimizer = cst_nodes.string_value(facts.value(facts.argument(call, "optim")[1])) or ""
    if facts.kind(call) == "arguments" and optimizer.startswith(_OPTIMIZERS):
        yield (f"{optimizer} needs whole matrices, not shards; take adamw_8bit or adamw_torch", call)
    if facts.method(call) != "from_pretrained":
        return
    loader = facts.qualified(call.func).rpartition(".")[0].rpartition(".")[2]
    if loader not in ("FastLanguageModel", "FastVisionModel") and not facts.is_after_training(call):
        yield (f"{loader} has not been shown to train the same run with a sharded model; {_INSTEAD}", call)
    elif libraries.has_experts(facts.loaded_name(call)):
        yield (f"a model with experts has not been shown to train the same run sharded; {_INSTEAD}", call)


def _parted(facts: Facts, call: cst.Call) -> Iterator[Refusal]:
    """Decline a call to which only some ranks would bring their shards."""
    if not isinstance(call.func, cst.Attribute):
        return
    method, owner = call.func.attr.value, call.func.value
    is_part = isinstance(owner, cst.Attribute | cst.Subscript) and not facts.kind(owner)
    last = owner.attr.value if isinstance(owner, cst.Attribute) else ""
    if method == "push_to_hub" and facts.kind(owner) == "trainer":
        why = "with --strategy fsdp a Trainer pushes from one rank, which holds a share"
        yield f"{why}; push what is saved, in a run of its own", call
    elif method in ("save_state", "save_model", "get_state_dict") and last == "accelerator":
        yield (f"accelerator.{method}() has not been shown to work with a sharded model; {_INSTEAD}", call)
    elif method in _WHOLE and is_part and last not in ("tokenizer", "processor", "processing_class"):
        yield _declined(f".{method}()", owner)


def _uses(facts: Facts) -> Iterator[cst.Name | cst.Attribute]:
    """Yield where the sharded model is read: a name, or ``trainer.model``."""
    nodes: list[cst.Name | cst.Attribute] = [*facts.name_loads, *facts.attributes]
    yield from (node for node in nodes if not facts.is_dead(node) and facts.is_sharded(node))


def _use(facts: Facts, node: cst.Name | cst.Attribute) -> Iterator[Refusal]:
    """Keep a use that needs no weights, or that every rank may make; save from shards; decline the rest."""
    parent = facts.parent(node)
    match parent:
        case cst.Attribute(attr=cst.Name(value=name)) if parent.value is node:
            if (call := facts.called(parent)) is None:
                if name not in _TELLING:
                    yield _declined(f".{name}", node)
            elif name == "save_pretrained":
                if why := _why_not_saved(facts, call):
                    yield why, call
            elif name not in libraries.GATHERING_METHODS | _SETTING:
                yield _declined(f".{name}()", node)
        case cst.Arg():
            taker = facts.parent(parent)
            assert isinstance(taker, cst.Call)
            if not _may_take(facts, taker):
                yield _declined(f" in {cst_nodes.code_of(taker.func)}(...)", node)
        case cst.Assign() | cst.Del() | cst.Expr() | cst.Return() | cst.Element():
            pass
        case _:
            yield _declined("", node)


def _may_take(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call may get a sharded model; what functions of the notebook do with it is looked at there."""
    name = facts.qualified(call.func)
    prepares = name.partition(".")[0] in libraries.UNSLOTH_PACKAGES and facts.method(call).startswith("for_")
    looked_at = facts.is_trainer_class(call.func) or bool(facts.called_functions(call))
    return prepares or looked_at or name in ("print", "display", "type", "id")


def _declined(use: str, node: cst.CSTNode) -> Refusal:
    why = f"this use of the model ({cst_nodes.code_of(node)}{use}) needs it whole, and with --strategy fsdp each rank"
    instead = "delete it, and do it in a run of its own from what save_pretrained() has saved"
    return f"{why} holds a share; {instead}", node


def saves(facts: Facts) -> Iterator[tuple[cst.Call, cst.Name]]:
    """Yield the calls that save the sharded model, each with the Trainer that has its shards."""
    for node in _uses(facts):
        call = facts.parent(facts.parent(node) or node)
        trainer = _trainer(facts)
        if not isinstance(call, cst.Call) or facts.method(call) != "save_pretrained" or trainer is None:
            continue
        if facts.contains(call.func, node) and not _why_not_saved(facts, call):
            yield call, trainer


def _why_not_saved(facts: Facts, call: cst.Call) -> str:
    """Return why a save cannot be made from the shards; "" where it can."""
    given = call.args[0] if len(call.args) == 1 else None
    if given is None or given.star or (given.keyword is not None and given.keyword.value != "save_directory"):
        return "with --strategy fsdp save_pretrained() takes a folder alone; delete its other arguments"
    trainer = _trainer(facts)
    if trainer is None or facts.scope(call) is not facts.scope(trainer):
        return "with --strategy fsdp a model is saved in the function that makes its Trainer; move this there"
    return ""


def _trainer(facts: Facts) -> cst.Name | None:
    """Return the name of the Trainer that trains."""
    trained = (facts.trained(call) for call in facts.train_calls)
    return next((node for node in trained if isinstance(node, cst.Name)), None)
