"""The notebook's batch is split over the ranks, so that the training run stays the same.

``per_device x accumulation x ranks`` must equal the notebook's ``per_device x accumulation``: with the
accumulation steps divided by the number of ranks, two GPUs give the same losses in half the time. Left
alone, every step would take twice the data and save no time at all.

.. code-block:: diff

     from trl import SFTConfig
    +batch_per_rank, accumulation_per_rank = share_batch(2, 4)  # nb2ddp: the notebook's batch, split
     args = SFTConfig(
    -    per_device_train_batch_size=2,
    -    gradient_accumulation_steps=4,
    +    per_device_train_batch_size=batch_per_rank,
    +    gradient_accumulation_steps=accumulation_per_rank,
     )
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from functools import partial

import libcst as cst

from nb2ddp import cstkit, install_step, knowledge
from nb2ddp.facts import Facts
from nb2ddp.rewrite import Decline, Edit, Finding, Insert, Need, Note, Options, Rule

BATCH, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"
DROPS_LAST = "dataloader_drop_last"
# What Transformers' TrainingArguments take when nothing is said.
DEFAULTS = {BATCH: "8", ACCUMULATION: "1"}
# What TRL's GRPOConfig takes.
GENERATIONS, GENERATIONS_DEFAULT = "num_generations", "8"
# Losses of Sentence Transformers that take the other samples of a batch for negatives.
_IN_BATCH = re.compile(r"(?:MultipleNegatives\w*|(?:Cached)?GISTEmbed)Loss$")
_GATHERS = "5.1.0"  # the Sentence Transformers from which on they can take them from all ranks
# Those that compare the samples of a batch with one another, and cannot.
_WITHIN_BATCH = re.compile(
    r"(?:Batch(?:All|Hard|SemiHard)\w*Triplet|MegaBatchMargin|CoSENT|AnglE|OnlineContrastive)Loss$"
)


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    recipes = list(_recipes(facts))
    yield from _out_of_sight(facts, bool(recipes))
    for node, given in recipes:
        if given is None:
            yield Decline("nb2ddp cannot see which batch these training arguments get; write it here", node)
            continue
        if options.batch == "scale":
            yield Note(
                "--batch scale: every rank takes the notebook's batch, so a step takes more data", node
            )
            continue
        yield from _by_kind(facts, node)
        if cstkit.code_of(given.get(ACCUMULATION, cst.Integer("1"))) == "1":
            gathered = yield from _in_batch(facts)
            if gathered and DROPS_LAST not in given:
                yield Note(
                    "on several GPUs Sentence Transformers drops an epoch's last batch if it is not full",
                    node,
                )
            if gathered and (split := _split_batches(facts, node)) is not None:
                yield split
                continue
        if isinstance(facts.scope(node), cst.Lambda) or _in_comprehension(facts, node):
            yield Decline(
                "training arguments made in an expression cannot be followed; give them a name", node
            )
            continue
        names = {BATCH: facts.our("batch_per_rank"), ACCUMULATION: facts.our("accumulation_per_rank")}
        values = [cstkit.code_of(given[key]) if key in given else DEFAULTS[key] for key in DEFAULTS]
        if _generates(facts, node, given):
            values.append(f"num_generations={_generations(given)}")
            yield Need("share_batch", "generations")
        code = f"{names[BATCH]}, {names[ACCUMULATION]} = {facts.our('share_batch')}({', '.join(values)})"
        yield Need("share_batch")
        yield Insert(
            facts.statement(node),
            "before",
            f"{code}  # nb2ddp: the notebook's batch, split",
            "the effective batch stays the notebook's",
        )
        yield Edit(node, "this rank's share of the batch", partial(_with_shares, names=names))


def _out_of_sight(facts: Facts, any_in_sight: bool) -> Iterator[Finding]:
    """Batches that are set where they cannot be split."""
    for target in facts.attribute_targets:
        if (
            target.attr.value in DEFAULTS
            and facts.kind(target.value) == "arguments"
            and not facts.is_dead(target)
        ):
            yield Decline(f"{target.attr.value} is set later; give it where the arguments are made", target)
    for call in facts.live_calls:
        if _sets_later(facts, call):
            yield Decline(
                "the batch is set here once more; give it where the training arguments are made", call
            )
        if not facts.is_trainer_class(call.func) or isinstance(facts.scope(call), cst.ClassDef):
            continue
        of_package = facts.qualified(call.func).partition(".")[0] in knowledge.TRAINER_PACKAGES
        unnamed = [argument for argument in call.args if argument.keyword is None]
        if of_package and facts.keyword(call, "args") is None and len(unnamed) < 2 and not _stars(call):
            yield Decline(
                "this Trainer has no training arguments, so its batch cannot be split; give it some", call
            )
        elif not any_in_sight:
            yield Decline(
                "nb2ddp cannot see how this Trainer's arguments are made; make them in the notebook", call
            )


def _recipes(facts: Facts) -> Iterator[tuple[cst.Call | cst.Dict, dict[str, cst.BaseExpression] | None]]:
    """Calls and dict literals that make training arguments, with the parts of the batch that they give.

    None: that cannot be known.
    """
    seen: set[cst.CSTNode] = set()
    for call in facts.live_calls:
        if not _makes_arguments(facts, call):
            continue
        recipe: cst.Call | cst.Dict = call
        given: dict[str, cst.BaseExpression] | None = _given(facts, call)
        if not set(DEFAULTS) <= set(given or ()):
            for made in facts.star_dicts(call):
                inside = _given(facts, made) if made is not None else None
                if inside is None or (inside and given):
                    given = None  # in a dict that is not here, or half here and half there
                    break
                if made is not None and inside:
                    recipe, given = made, inside
        if recipe not in seen:
            seen.add(recipe)
            yield recipe, given


def _makes_arguments(facts: Facts, call: cst.Call) -> bool:
    if facts.qualified(call.func) == "functools.partial" and call.args:
        return facts.is_arguments_class(call.args[0].value)
    return facts.is_arguments_class(call.func)


def _by_kind(facts: Facts, node: cst.Call | cst.Dict) -> Iterator[Finding]:
    """What some losses take from the samples that are worked on at one time."""
    name = facts.qualified(node.func).rpartition(".")[2] if isinstance(node, cst.Call) else ""
    if name.startswith("KTO"):
        yield Note(
            "KTO estimates its KL term on the samples under way on all ranks, so the losses are near the "
            "notebook's and not equal",
            node,
        )
    elif name.startswith(("ORPO", "CPO")):
        yield Note(
            "this loss has a mean over the tokens of one batch: equal to the notebook's where the "
            "accumulation steps divide, and near it where the batch of a GPU has to be split",
            node,
        )


def _in_batch(facts: Facts) -> Generator[Finding, None, bool]:
    """A batch that is split has fewer negatives, where there are no accumulation steps to divide.

    Returns whether all ranks bring theirs together again.
    """
    old = install_step.keeps_below(install_step.pins(facts, "sentence-transformers"), _GATHERS)
    gathered = False
    for call in facts.live_calls:
        name = facts.qualified(call.func).rpartition(".")[2]
        if facts.is_after_training(call):
            continue
        if _WITHIN_BATCH.match(name):
            yield Note(
                f"{name} compares the samples of a batch with one another. With 1 accumulation step the "
                "batch itself is split, and a sample meets those of one GPU alone: the loss is another one",
                call,
            )
        if not _IN_BATCH.search(name):
            continue
        gathers = facts.keyword(call, "gather_across_devices")
        if gathers is not None and cstkit.code_of(gathers) != "False":
            gathered = True
        elif old or _stars(call):
            yield Note(
                f"{name} takes a batch's other samples for negatives. With 1 accumulation step the batch "
                "itself is split: on two GPUs a sample meets half of them, and the loss is another one. "
                f"gather_across_devices=True here (Sentence Transformers {_GATHERS} or newer) brings them "
                "together again",
                call,
            )
        else:
            gathered = True
            yield Edit(
                call,
                "the batch is split, and a sample still meets all of it as negatives",
                partial(
                    _with_keyword,
                    name="gather_across_devices",
                    value=f"{facts.our('world_size')} > 1",
                    comment="nb2ddp: negatives from all ranks",
                ),
            )
    return gathered


def _split_batches(facts: Facts, node: cst.Call | cst.Dict) -> Finding | None:
    """What a batch sampler keeps apart in a batch is to stay apart in the batch of all ranks.

    So it makes the notebook's batches, and Accelerate gives each rank its part of them.
    """
    sampler = facts.keyword(node, "batch_sampler") if isinstance(node, cst.Call) else None
    if not isinstance(node, cst.Call) or sampler is None:
        return None
    if facts.keyword(node, "accelerator_config") is not None:
        return Note(
            "this batch sampler makes the batch of one rank: what it keeps apart in a batch can meet in the "
            'batch of all ranks. "split_batches": True in accelerator_config gives each rank a part of its '
            "batches instead",
            sampler,
        )
    return Edit(
        node,
        "the sampler makes the notebook's batches, and each rank takes its part of them",
        partial(
            _with_keyword,
            name="accelerator_config",
            value=f'{{"split_batches": {facts.our("world_size")} > 1}}',
            comment="nb2ddp: each rank takes its part of a batch",
        ),
    )


def _with_keyword(node: cst.CSTNode, name: str, value: str, comment: str) -> cst.CSTNode:
    return cstkit.with_keyword(cst.ensure_type(node, cst.Call), name, value, comment)


def _stars(call: cst.Call) -> bool:
    return any(argument.star == "**" for argument in call.args)


def _in_comprehension(facts: Facts, node: cst.CSTNode) -> bool:
    """Whether names of a comprehension may be among a call's arguments: no line above it knows them."""
    for parent in facts.parents(node):
        if isinstance(parent, cst.BaseComp):
            return True
        if isinstance(parent, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            return False
    return False


def _sets_later(facts: Facts, call: cst.Call) -> bool:
    """``replace(args, per_device_train_batch_size=4)``, setattr, or the call of a ``partial``."""
    name = facts.qualified(call.func)
    if name == "setattr" and len(call.args) > 1:
        return cstkit.string_value(call.args[1].value) in DEFAULTS
    if not any(facts.keyword(call, key) for key in DEFAULTS):
        return False
    if name in ("dataclasses.replace", "copy.replace"):
        return True
    binding = facts.binding(call.func) if isinstance(call.func, cst.Name) else None
    made = binding.value if binding is not None else None
    return isinstance(made, cst.Call) and facts.qualified(made.func) == "functools.partial"


def _given(facts: Facts, node: cst.Call | cst.Dict) -> dict[str, cst.BaseExpression]:
    wanted = (*DEFAULTS, GENERATIONS, DROPS_LAST)
    if isinstance(node, cst.Call):
        return {key: value for key in wanted if (value := facts.keyword(node, key)) is not None}
    return {
        key: element.value
        for element in node.elements
        if isinstance(element, cst.DictElement)
        and (key := cstkit.string_value(element.key)) is not None
        and key in wanted
    }


def _generates(facts: Facts, node: cst.Call | cst.Dict, given: Mapping[str, cst.BaseExpression]) -> bool:
    """Whether a step's samples are groups of completions of one prompt: a group must not be torn."""
    if GENERATIONS in given:
        return True
    return isinstance(node, cst.Call) and "GRPO" in facts.qualified(node.func).rpartition(".")[2]


def _generations(given: Mapping[str, cst.BaseExpression]) -> str:
    return cstkit.code_of(given[GENERATIONS]) if GENERATIONS in given else GENERATIONS_DEFAULT


def _with_shares(node: cst.CSTNode, names: dict[str, str]) -> cst.CSTNode:
    if isinstance(node, cst.Call):
        for key, name in names.items():
            node = cstkit.with_keyword(node, key, name)
        return node
    assert isinstance(node, cst.Dict)
    missing = dict(names)
    elements = []
    for element in node.elements:
        if isinstance(element, cst.DictElement) and (found := cstkit.string_value(element.key)) in missing:
            assert found is not None
            element = element.with_changes(value=cst.Name(missing.pop(found)))
        elements.append(element)
    node = node.with_changes(elements=elements)
    return cstkit.with_dict_items(node, missing)


rule = Rule("batch", __doc__, find)
