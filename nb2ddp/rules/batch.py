"""Split the notebook's batch over the ranks where its Trainer generates in each step, as GRPO's does.

Such a Trainer divides the prompts among the ranks by itself, so ``per_device x accumulation x ranks`` must equal the
notebook's ``per_device x accumulation``: left alone, every step would take twice the data and save no time at all.
Groups of completions stay whole. All other Trainers run on the notebook's own arguments (see ``wrap``).

.. code-block:: diff

     from trl import GRPOConfig
    +batch_per_rank, accumulation_per_rank = ddp.share_batch(8, 4, num_generations=8)  # nb2ddp: the notebook's batch, split
     args = GRPOConfig(
         num_generations=8,
    -    per_device_train_batch_size=8,
    -    gradient_accumulation_steps=4,
    +    per_device_train_batch_size=batch_per_rank,
    +    gradient_accumulation_steps=accumulation_per_rank,
     )
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.training_arguments import (
    ACCUMULATION,
    BATCH,
    DEFAULTS,
    GENERATING,
    GENERATING_STEPS,
    GENERATIONS,
    GENERATIONS_DEFAULT,
    OF_TEXT,
    batch_code,
    generates,
    libraries_know_ranks,
    makes_arguments,
    recipes,
    sets_later,
)
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Batch, Decline, Edit, Finding, Insert, Note
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Binding


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    yield from _searched_batch(facts)
    if not libraries_know_ranks(facts, options.strategy):
        return
    made = [(node, given) for node, given in recipes(facts) if not facts.is_after_training(node)]
    yield from _own_loaders(facts)
    for call in facts.train_calls if options.strategy == "ddp" else ():
        one, why = "beside one that generates, this Trainer's", "another run's: train it in its own notebook"
        kind = facts.trainer_class(facts.trained(call))
        if kind and not OF_TEXT.search(kind):
            yield Decline(f"{one} losses are {why}", call)
        elif kind and not GENERATING.search(kind):
            yield Note(f"{one} accuracies and uneven steps are {why}", call)
    yield from (
        _read_back(facts, made[0][1] if len(made) == 1 else None) if options.batch == "preserve" else ()
    )
    yield from _out_of_sight(facts, bool(made))
    for node, given in made:
        if given is None:
            written = isinstance(node, cst.Call) and cst_nodes.keyword_of(node, BATCH) is not None
            missing = ACCUMULATION if written else BATCH
            why = f"nb2ddp cannot tell which batch these training arguments get; write {missing} here"
            yield Decline(why, node)
            continue
        if options.batch == "scale":
            why = "--batch scale: every rank takes the notebook's batch, so each step takes more data"
            yield Note(why, node)
            continue
        kind = facts.qualified(node.func).rpartition(".")[2] if isinstance(node, cst.Call) else ""
        if kind.startswith(("GRPO", "RLOO", "OnlineDPO")):
            why = "each rank samples its own completions: not the notebook's own figures, and an equivalent run where"
            yield Note(f"{why} rewards keep nothing from call to call", node)
        if facts.around(node, cst.Lambda, cst.BaseComp) is not None:  # type: ignore[type-abstract]
            why = "training arguments made inside an expression cannot be followed; assign them to a variable first"
            yield Decline(why, node)
            continue
        shares = {BATCH: facts.our("batch_per_rank"), ACCUMULATION: facts.our("accumulation_per_rank")}
        yield _share_call(facts, node, given, shares)
        if GENERATING_STEPS in given:
            share = _generating_steps(given, shares[ACCUMULATION])
            if share is None:
                why = f"{GENERATING_STEPS} is split as {ACCUMULATION} is, so it must be a multiple of it"
                yield Decline(why, node)
                continue
            shares[GENERATING_STEPS] = share
        yield Edit.items(node, "this rank's share of the batch", shares)


def _share_call(
    facts: Facts, node: cst.Call | cst.Dict, given: Mapping[str, cst.BaseExpression], names: Mapping[str, str]
) -> Insert:
    """Return the line that splits the batch above the statement that makes the arguments."""
    values = batch_code(given)
    groups = cst_nodes.code_of(given[GENERATIONS]) if GENERATIONS in given else GENERATIONS_DEFAULT
    in_group = [groups] if generates(facts, node, given) else []
    arguments = ", ".join([*values, *(f"num_generations={number}" for number in in_group)])
    code = f"{names[BATCH]}, {names[ACCUMULATION]} = {helper(facts, 'share_batch')}({arguments})"
    code, why = f"{code}  # nb2ddp: the notebook's batch, split", "the notebook's batch is split over ranks"
    return Insert(facts.statement(node), "before", code, why, Batch.of(*values, *in_group))


def _out_of_sight(facts: Facts, any_in_sight: bool) -> Iterator[Finding]:
    """Decline batches that are set where they cannot be split."""
    for target in facts.attribute_targets:
        is_set = target.attr.value in DEFAULTS and facts.kind(target.value) == "arguments"
        if is_set and not facts.is_dead(target):
            why = f"{target.attr.value} is set after the training arguments are made; pass it when they are made"
            yield Decline(why, target)
    for call in facts.live_calls:
        if sets_later(facts, call):
            why = "the batch is set here a second time; pass it when the training arguments are made"
            yield Decline(why, call)
        if not facts.is_trainer_class(call.func) or isinstance(facts.scope(call), cst.ClassDef):
            continue
        of_package = facts.qualified(call.func).partition(".")[0] in libraries.TRAINER_PACKAGES
        by_place = sum(argument.keyword is None for argument in call.args) > 1
        if of_package and not (by_place or facts.keyword(call, "args") or facts.star_dicts(call)):
            why = "this Trainer has no training arguments, so its batch cannot be split; pass it args="
            yield Decline(why, call)
        elif not any_in_sight:
            why = "nb2ddp cannot tell how this Trainer's arguments are made; make them in a cell of the notebook"
            yield Decline(why, call)


def _searched_batch(facts: Facts) -> Iterator[Finding]:
    """Take the batch that is given where the run would search for one: each rank could find another."""
    for call in facts.live_calls:
        finds = facts.keyword(call, "auto_find_batch_size")
        if finds is not None and cst_nodes.code_of(finds) != "False" and makes_arguments(facts, call):
            why = "auto_find_batch_size could find another batch on each rank: the script keeps to the batch given here"
            yield Edit.to(finds, why, "False")
            yield Note(f"{why}. Where that does not fit on a GPU, the run ends; give a smaller one", finds)


def _own_loaders(facts: Facts) -> Iterator[Finding]:
    """Decline an unprepared `get_train_dataloader`, where the Trainer divides the rows among the ranks."""
    for found in facts.definitions("get_train_dataloader"):
        code = cst_nodes.code_of(found.node)
        if "prepare" not in code and "super()" not in code:
            why = "this DataLoader gives every rank all the data, because the Trainer splits only those that it makes"
            instead = "_get_train_sampler() instead, or return self.accelerator.prepare(DataLoader(...))"
            yield Decline(f"{why}; override {instead}", found.node)


def _generating_steps(given: Mapping[str, cst.BaseExpression], accumulation: str) -> str | None:
    """Return the code of ``steps_per_generation`` with which each generation still serves the same prompts."""
    steps = cst_nodes.code_of(given[GENERATING_STEPS])
    notebooks = cst_nodes.code_of(given.get(ACCUMULATION, cst.Integer(DEFAULTS[ACCUMULATION])))
    if steps in ("None", notebooks):
        return steps if steps == "None" else accumulation
    if steps.isdigit() and notebooks.isdigit() and int(steps) % int(notebooks) == 0:
        return f"{int(steps) // int(notebooks)} * {accumulation}"
    return None


def _read_back(facts: Facts, given: Mapping[str, cst.BaseExpression] | None) -> Iterator[Finding]:
    """Yield edits where the batch is read back: it would be one rank's share, not the notebook's value."""
    for attribute in facts.attributes:
        name = {"train_batch_size": BATCH}.get(attribute.attr.value, attribute.attr.value)
        if name not in DEFAULTS or attribute in facts.attribute_targets or facts.is_dead(attribute):
            continue
        of_arguments = facts.kind(attribute.value) == "arguments" or _is_of_callback(facts, attribute.value)
        if not of_arguments or _times_ranks(facts, attribute):
            continue
        number = None if given is None else cst_nodes.code_of(given.get(name, cst.Integer(DEFAULTS[name])))
        if number is not None and number.isdigit():
            yield Edit.to(attribute, "the notebook's value, not this rank's share of it", number)
        else:
            why = "this reads one rank's share of the batch; write the number itself if the notebook's is"
            yield Note(f"{why} meant", attribute)


def _times_ranks(facts: Facts, attribute: cst.Attribute) -> bool:
    """Return whether a line reads the number of ranks, too: a rank's share, times the ranks.

    An Accelerator that the notebook makes knows of one process.
    """
    beside = facts.nodes(cst.Attribute, within=facts.statement(attribute))
    counts = (other for other in beside if other.attr.value in ("world_size", "num_processes"))
    return any(facts.kind(other.value) != "accelerator" for other in counts)


def _is_of_callback(facts: Facts, node: cst.BaseExpression) -> bool:
    """Match ``args`` in a callback's ``on_step_end(self, args, ...)``."""
    match facts.binding(node):
        case Binding(node=argument, scope=cst.FunctionDef(name=cst.Name(name), params=given)):
            return name.startswith("on_") and given.params[1:2] == (argument,)
    return False
