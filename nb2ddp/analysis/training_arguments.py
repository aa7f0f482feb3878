"""Find where training arguments are made, and which parts of the batch they set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.flow import pairs_of
from nb2ddp.source import cst_nodes

BATCH, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"
# The defaults of Transformers' TrainingArguments.
DEFAULTS = {BATCH: "8", ACCUMULATION: "1"}
# The default of TRL's GRPOConfig.
GENERATIONS, GENERATIONS_DEFAULT = "num_generations", "8"
GENERATING_STEPS = "steps_per_generation"


def recipes(facts: Facts) -> Iterator[tuple[cst.Call | cst.Dict, dict[str, cst.BaseExpression] | None]]:
    """Yield the calls and dict literals that make training arguments, and which parts of the batch they set.

    None instead of the parts: they cannot be known.
    """
    seen: set[cst.CSTNode] = set()
    for call in facts.live_calls:
        if not makes_arguments(facts, call):
            continue
        dicts = [] if set(DEFAULTS) <= set(_given(facts, call)) else facts.star_dicts(call)
        setting = [made for made in (call, *dicts) if made is None or _given(facts, made)] or [call]
        # Of several, one is a dict out of sight, or the batch is set partly here and there.
        only = setting[0] if len(setting) == 1 else None
        if (recipe := only or call) not in seen:
            seen.add(recipe)
            yield recipe, _given(facts, only) if only is not None else None


def makes_arguments(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call makes training arguments, or a `functools.partial` of their class."""
    is_partial = facts.qualified(call.func) == "functools.partial" and bool(call.args)
    return facts.is_arguments_class(call.args[0].value if is_partial else call.func)


def generates(facts: Facts, node: cst.Call | cst.Dict, given: Mapping[str, cst.BaseExpression]) -> bool:
    """Return whether a step's samples are groups of completions of one prompt, which must stay together."""
    is_grpo = isinstance(node, cst.Call) and "GRPO" in facts.qualified(node.func).rpartition(".")[2]
    return is_grpo or GENERATIONS in given


def batch_code(given: Mapping[str, cst.BaseExpression]) -> list[str]:
    """Return the code of the batch of one device, and of the steps that it is accumulated over."""
    return [cst_nodes.code_of(given[key]) if key in given else usual for key, usual in DEFAULTS.items()]


# Trainers of language models, whose losses the libraries weigh by the tokens of all ranks.
OF_TEXT = re.compile(r"SFT|PO|KTO|RLOO|NashMD|BCO|GKD|Unsloth")
# Trainers that sample completions in each step: the ranks divide the prompts, and the libraries must know of them.
GENERATING = re.compile(r"GRPO|RLOO|OnlineDPO|NashMD|XPO|PPO")


def libraries_know_ranks(facts: Facts, strategy: str) -> bool:
    """Return whether the libraries are to see all ranks: a Trainer generates, or the model is sharded.

    All other Trainers see one process, with the notebook's own arguments.
    """
    return strategy == "fsdp" or facts.once(_generates)


def _generates(facts: Facts) -> bool:
    used = (facts.owner(call) for call in facts.live_calls if facts.method(call) in ("train", "step"))
    names = [facts.trainer_class(owner) for owner in used if facts.kind(owner) == "trainer"]
    if not names or "" in names:  # out of sight: what is made tells, or its arguments
        made = [call.func for call in facts.live_calls if facts.is_trainer_class(call.func)]
        made = made or [call.func for call in facts.live_calls if makes_arguments(facts, call)]
        names += [facts.qualified(name).rpartition(".")[2] for name in made]
    return any(GENERATING.search(name) for name in names)


def sets_later(facts: Facts, call: cst.Call) -> bool:
    """Match ``replace(args, per_device_train_batch_size=4)``, setattr, and the call of a ``partial``."""
    name = facts.qualified(call.func)
    if name == "setattr" and len(call.args) > 1:
        return cst_nodes.string_value(call.args[1].value) in DEFAULTS
    if not any(facts.keyword(call, key) for key in DEFAULTS):
        return False
    replaces, made = name in ("dataclasses.replace", "copy.replace"), facts.bound(call.func)
    return replaces or (isinstance(made, cst.Call) and facts.qualified(made.func) == "functools.partial")


def _given(facts: Facts, node: cst.Call | cst.Dict) -> dict[str, cst.BaseExpression]:
    pairs = (((key or "").replace("per_gpu", "per_device"), value) for key, value in pairs_of(node))
    return {key: value for key, value in pairs if key in (*DEFAULTS, GENERATIONS, GENERATING_STEPS)}
