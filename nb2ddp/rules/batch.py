"""The notebook's batch is split over the ranks, so that the training run stays the same.

``per_device x accumulation x ranks`` must equal the notebook's ``per_device x accumulation``: with the
accumulation steps divided by the number of ranks, two GPUs give the same losses in half the time. Left
alone, every step would take twice the data and save no time at all.

.. code-block:: diff

     from trl import SFTConfig
    -args = SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4)
    +batch_per_rank, accumulation_per_rank = share_batch(2, 4)  # nb2ddp: the notebook's batch, split over the ranks
    +args = SFTConfig(per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from nb2ddp import cstkit
from nb2ddp.facts import Facts
from nb2ddp.rewrite import Decline, Edit, Finding, Insert, Need, Note, Options, Rule

BATCH, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"
# What Transformers' TrainingArguments take when nothing is said.
DEFAULTS = {BATCH: "8", ACCUMULATION: "1"}


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for node, given in _recipes(facts):
        if options.batch == "scale":
            yield Note(
                "--batch scale: every rank takes the notebook's batch, so a step takes more data", node
            )
            continue
        statement = facts.statement(node)
        if isinstance(facts.scope(node), cst.Lambda):
            yield Decline("training arguments made in a lambda cannot be followed; give them a name", node)
            continue
        names = {BATCH: facts.our("batch_per_rank"), ACCUMULATION: facts.our("accumulation_per_rank")}
        values = [
            cstkit.code_of(given[key]) if key in given else DEFAULTS[key] for key in (BATCH, ACCUMULATION)
        ]
        code = f"{names[BATCH]}, {names[ACCUMULATION]} = {facts.our('share_batch')}({', '.join(values)})"
        yield Need("share_batch")
        yield Insert(
            statement,
            "before",
            f"{code}  # nb2ddp: the notebook's batch, split over the ranks",
            "the effective batch stays the notebook's",
        )
        yield Edit(node, "this rank's share of the batch", partial(_with_shares, names=names))


def _recipes(facts: Facts) -> Iterator[tuple[cst.Call | cst.Dict, dict[str, cst.BaseExpression]]]:
    """Calls and dict literals that hold a training run's batch, with the values that they give."""
    for call in facts.live_calls:
        given = {key: value for key in DEFAULTS if (value := facts.keyword(call, key)) is not None}
        if given:
            yield call, given
        elif _is_arguments(facts, call) and not any(argument.star for argument in call.args):
            yield call, {}
        for argument in call.args:
            if isinstance(argument.value, cst.Dict):
                yield from _in_dict(argument.value)
    for name in facts.bound_names:
        for binding in facts.bindings(name):
            if isinstance(binding.value, cst.Dict) and not facts.is_dead(binding.node):
                yield from _in_dict(binding.value)


def _is_arguments(facts: Facts, call: cst.Call) -> bool:
    return (
        isinstance(call.func, cst.Name | cst.Attribute)
        and facts.kind(call) == "arguments"
        and bool(call.args)
    )


def _in_dict(node: cst.Dict) -> Iterator[tuple[cst.Dict, dict[str, cst.BaseExpression]]]:
    given = {
        key: element.value
        for element in node.elements
        if isinstance(element, cst.DictElement) and (key := cstkit.string_value(element.key)) in DEFAULTS
    }
    if given:
        yield node, {key: value for key, value in given.items() if key is not None}


def _with_shares(node: cst.CSTNode, names: dict[str, str]) -> cst.CSTNode:
    if isinstance(node, cst.Call):
        for key, name in names.items():
            node = cstkit.with_keyword(node, key, name)
        return node
    assert isinstance(node, cst.Dict)
    missing = dict(names)
    elements = []
    for element in node.elements:
        key = cstkit.string_value(element.key) if isinstance(element, cst.DictElement) else None
        if key in names:
            element = element.with_changes(value=cst.Name(missing.pop(key)))
        elements.append(element)
    node = node.with_changes(elements=elements)
    return cstkit.with_dict_items(node, missing)


rule = Rule("batch", __doc__, find)
