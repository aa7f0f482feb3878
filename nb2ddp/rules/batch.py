"""The notebook's batch is split over the ranks, so that the training run stays the same.

``per_device x accumulation x ranks`` must equal the notebook's ``per_device x accumulation``: with the
accumulation steps divided by the number of ranks, two GPUs give the same losses in half the time. Left
alone, every step would take twice the data and save no time at all.

.. code-block:: diff

     from trl import SFTConfig
    +batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 4)  # nb2ddp: the notebook's batch, split
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

from nb2ddp import libraries
from nb2ddp.analysis import installs
from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Batch, Decline, Edit, Finding, Insert, Note, Rule
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes

BATCH, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"
DROPS_LAST = "dataloader_drop_last"
# What Transformers' TrainingArguments take when nothing is said.
DEFAULTS = {BATCH: "8", ACCUMULATION: "1"}
# What TRL's GRPOConfig takes.
GENERATIONS, GENERATIONS_DEFAULT = "num_generations", "8"
GENERATING_STEPS = "steps_per_generation"
# Losses of Sentence Transformers that take the other samples of a batch for negatives.
_IN_BATCH = re.compile(r"(?:MultipleNegatives\w*|(?:Cached)?GISTEmbed)Loss$")
_GATHERS = "5.1.0"  # the Sentence Transformers from which on they can take them from all ranks
# Those that compare the samples of a batch with one another, and cannot.
_WITHIN_BATCH = re.compile(
    r"(?:Batch(?:All|Hard|SemiHard)\w*Triplet|MegaBatchMargin|CoSENT|AnglE|OnlineContrastive)Loss$"
)


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    recipes = list(_recipes(facts))
    yield from _own_batches(facts)
    if options.batch == "preserve":
        yield from _read_back(facts, recipes)
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
        if cst_nodes.code_of(given.get(ACCUMULATION, cst.Integer("1"))) == "1":
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
        yield from _order_of_rows(facts, node)
        names = {BATCH: facts.our("batch_per_rank"), ACCUMULATION: facts.our("accumulation_per_rank")}
        values = [cst_nodes.code_of(given[key]) if key in given else DEFAULTS[key] for key in DEFAULTS]
        if _generates(facts, node, given):
            values.append(f"num_generations={_generations(given)}")
        code = f"{names[BATCH]}, {names[ACCUMULATION]} = {helper(facts, 'share_batch')}({', '.join(values)})"
        yield Insert(
            facts.statement(node),
            "before",
            f"{code}  # nb2ddp: the notebook's batch, split",
            "the effective batch stays the notebook's",
            _in_numbers(values),
        )
        shares = dict(names)
        if GENERATING_STEPS in given:
            share = _generating_steps(given, names[ACCUMULATION])
            if share is None:
                yield Decline(
                    f"{GENERATING_STEPS} is split as {ACCUMULATION} is, so it must be a multiple of it", node
                )
                continue
            shares[GENERATING_STEPS] = share
        yield Edit(node, "this rank's share of the batch", partial(_with_shares, names=shares))


def _in_numbers(values: list[str]) -> Batch | None:
    """The arguments of share_batch as numbers; None where one of them is known at run time alone."""
    numbers = [value.removeprefix("num_generations=") for value in values]
    return Batch(*map(int, numbers)) if all(number.isdigit() for number in numbers) else None


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
        of_package = facts.qualified(call.func).partition(".")[0] in libraries.TRAINER_PACKAGES
        unnamed = [argument for argument in call.args if argument.keyword is None]
        if of_package and facts.keyword(call, "args") is None and len(unnamed) < 2 and not _stars(call):
            yield Decline(
                "this Trainer has no training arguments, so its batch cannot be split; give it some", call
            )
        elif not any_in_sight:
            yield Decline(
                "nb2ddp cannot see how this Trainer's arguments are made; make them in the notebook", call
            )


def _own_batches(facts: Facts) -> Iterator[Finding]:
    """Batches that the run finds for itself, or that a Trainer of the notebook's own makes."""
    for call in facts.live_calls:
        finds = facts.keyword(call, "auto_find_batch_size")
        if finds is not None and cst_nodes.code_of(finds) != "False" and _makes_arguments(facts, call):
            yield Decline(
                "auto_find_batch_size would find another batch on each rank; give a batch that fits instead",
                finds,
            )
        method = facts.scope(call)
        if (
            facts.kind(call) == "loader"
            and isinstance(method, cst.FunctionDef)
            and method.name.value == "get_train_dataloader"
            and "prepare" not in cst_nodes.code_of(method.body)
        ):
            yield Decline(
                "this DataLoader gives every rank all the data, for the Trainer shares out its own alone; "
                "override _get_train_sampler() instead, or return self.accelerator.prepare(DataLoader(...))",
                call,
            )


def _generating_steps(given: Mapping[str, cst.BaseExpression], accumulation: str) -> str | None:
    """``steps_per_generation`` for a rank's accumulation steps: the same prompts for each generation."""
    steps = cst_nodes.code_of(given[GENERATING_STEPS])
    notebooks = cst_nodes.code_of(given.get(ACCUMULATION, cst.Integer(DEFAULTS[ACCUMULATION])))
    if steps == "None":
        return steps
    if steps == notebooks:
        return accumulation
    if steps.isdigit() and notebooks.isdigit() and int(steps) % int(notebooks) == 0:
        return f"{int(steps) // int(notebooks)} * {accumulation}"
    return None


def _streams(facts: Facts) -> bool:
    return any(facts.streams(call) for call in facts.live_calls if not facts.is_after_training(call))


def _order_of_rows(facts: Facts, node: cst.Call | cst.Dict) -> Iterator[Finding]:
    """What decides which rows come together, and in what order."""
    if not isinstance(node, cst.Call):
        return
    grouped = facts.keyword(node, "group_by_length")
    strategy = cst_nodes.string_value(facts.keyword(node, "train_sampling_strategy"))
    if strategy == "group_by_length" or (grouped is not None and cst_nodes.code_of(grouped) != "False"):
        yield Note(
            "rows are grouped by length within portions that depend on a rank's batch: each comes once, in "
            "another order than the notebook's",
            node,
        )
    streams = facts.once(_streams)
    given = any(facts.keyword(node, name) for name in ("accelerator_config", "dispatch_batches"))
    if streams and not given:
        yield Edit(
            node,
            "each rank reads the stream and takes its part: batches of unlike lengths cannot be sent on",
            partial(
                _with_keyword,
                name="accelerator_config",
                value='{"dispatch_batches": False}',
                comment="nb2ddp: each rank reads the stream and takes its part",
            ),
        )


def _read_back(
    facts: Facts, recipes: list[tuple[cst.Call | cst.Dict, dict[str, cst.BaseExpression] | None]]
) -> Iterator[Finding]:
    """``args.per_device_train_batch_size`` would be one rank's share; the notebook means its own number."""
    for attribute in facts.attributes:
        name = {"train_batch_size": BATCH}.get(attribute.attr.value, attribute.attr.value)
        if name not in DEFAULTS or attribute in facts.attribute_targets or facts.is_dead(attribute):
            continue
        of = attribute.value
        of_trainer = isinstance(of, cst.Attribute) and of.attr.value == "args"
        if facts.kind(of.value if of_trainer and isinstance(of, cst.Attribute) else of) not in (
            ("trainer",) if of_trainer else ("arguments",)
        ):
            continue
        given = recipes[0][1] if len(recipes) == 1 else None
        number = None if given is None else cst_nodes.code_of(given.get(name, cst.Integer(DEFAULTS[name])))
        if number is not None and number.isdigit():
            number_code = partial(cst_nodes.replaced, code=number)
            yield Edit(attribute, "the notebook's number, not this rank's share of it", number_code)
        else:
            yield Note("this reads one rank's share of the batch, not the notebook's number", attribute)


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


def _losses(facts: Facts) -> list[tuple[str, cst.Call]]:
    """List the calls of losses that compare the samples of a batch."""
    named = [(facts.qualified(call.func).rpartition(".")[2], call) for call in facts.live_calls]
    return [(name, call) for name, call in named if _WITHIN_BATCH.match(name) or _IN_BATCH.search(name)]


def _in_batch(facts: Facts) -> Generator[Finding, None, bool]:
    """A batch that is split has fewer negatives, where there are no accumulation steps to divide.

    Returns whether all ranks bring theirs together again.
    """
    old = installs.keeps_below(installs.pins(facts, "sentence-transformers"), _GATHERS)
    gathered = False
    for name, call in facts.once(_losses):
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
        if gathers is not None and cst_nodes.code_of(gathers) != "False":
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
    return cst_nodes.with_keyword(cst.ensure_type(node, cst.Call), name, value, comment)


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
        return cst_nodes.string_value(call.args[1].value) in DEFAULTS
    if not any(facts.keyword(call, key) for key in DEFAULTS):
        return False
    if name in ("dataclasses.replace", "copy.replace"):
        return True
    binding = facts.binding(call.func) if isinstance(call.func, cst.Name) else None
    made = binding.value if binding is not None else None
    return isinstance(made, cst.Call) and facts.qualified(made.func) == "functools.partial"


def _given(facts: Facts, node: cst.Call | cst.Dict) -> dict[str, cst.BaseExpression]:
    wanted = (*DEFAULTS, GENERATIONS, GENERATING_STEPS, DROPS_LAST)
    if isinstance(node, cst.Call):
        return {key: value for key in wanted if (value := facts.keyword(node, key)) is not None}
    return {
        key: element.value
        for element in node.elements
        if isinstance(element, cst.DictElement)
        and (key := cst_nodes.string_value(element.key)) is not None
        and key in wanted
    }


def _generates(facts: Facts, node: cst.Call | cst.Dict, given: Mapping[str, cst.BaseExpression]) -> bool:
    """Whether a step's samples are groups of completions of one prompt: a group must not be torn."""
    if GENERATIONS in given:
        return True
    return isinstance(node, cst.Call) and "GRPO" in facts.qualified(node.func).rpartition(".")[2]


def _generations(given: Mapping[str, cst.BaseExpression]) -> str:
    return cst_nodes.code_of(given[GENERATIONS]) if GENERATIONS in given else GENERATIONS_DEFAULT


def _with_shares(node: cst.CSTNode, names: dict[str, str]) -> cst.CSTNode:
    if isinstance(node, cst.Call):
        for key, name in names.items():
            node = cst_nodes.with_keyword(node, key, name)
        return node
    assert isinstance(node, cst.Dict)
    missing = dict(names)
    elements = []
    for element in node.elements:
        if isinstance(element, cst.DictElement) and (found := cst_nodes.string_value(element.key)) in missing:
            assert found is not None
            element = element.with_changes(value=cst_nodes.expression(missing.pop(found)))
        elements.append(element)
    node = node.with_changes(elements=elements)
    return cst_nodes.with_dict_items(node, missing)


rule = Rule("batch", __doc__, find)
