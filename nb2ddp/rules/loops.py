"""A hand-written training loop trains through DDP, each rank on its share of every batch.

The batches are the notebook's own, in the notebook's order, so the losses are too. Only the calls whose
gradients are needed go through the wrapper; evaluation and saving keep using ``model``. A loss that is
reported is the mean over the ranks.

.. code-block:: diff

     from torch.utils.data import DataLoader
     from transformers import AutoModelForCausalLM
     model = AutoModelForCausalLM.from_pretrained("m")
    -loader = DataLoader(data, batch_size=8, shuffle=True)
    +loader = share_batches(DataLoader(data, batch_size=8, shuffle=True))
    +ddp_model = wrap_ddp(model)  # nb2ddp: `model` itself stays as it is
     for batch in loader:
    -    loss = model(**batch).loss
    +    loss = ddp_model(**batch).loss
         loss.backward()
    -    print(loss.item())
    +    print(mean_over_ranks(loss).item())
    +check_replicas(ddp_model)
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp import cstkit
from nb2ddp.facts import Facts
from nb2ddp.rewrite import Decline, Edit, Finding, Insert, Need, Options, Rule

_ITERATING = frozenset("enumerate tqdm iter zip track progress_bar trange".split())


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    done: set[cst.CSTNode] = set()
    for call in facts.live_calls:
        if facts.method(call) != "backward":
            continue
        loop = next((p for p in facts.parents(call) if isinstance(p, cst.For | cst.While)), None)
        if loop is not None and loop not in done:
            done.add(loop)
            yield from _loop(facts, call, loop)


def _loop(facts: Facts, backward: cst.Call, loop: cst.For | cst.While) -> Iterator[Finding]:
    assert isinstance(backward.func, cst.Attribute)
    if backward.args:
        yield Decline(
            "this loop runs on Accelerate, which is distributed already: `accelerate launch` runs it on several GPUs",
            backward,
        )
        return
    if facts.scope(loop) is not None:
        yield Decline(
            "a training loop inside a function cannot be followed yet; move it to a cell of its own", loop
        )
        return
    models = [
        call
        for call in facts.calls_in(loop)
        if isinstance(call.func, cst.Name)
        and facts.kind(call.func) == "model"
        and _is_trained_call(facts, call, loop)
    ]
    if len({call.func.value for call in models if isinstance(call.func, cst.Name)}) != 1:
        yield Decline("nb2ddp cannot tell which model this loop trains", loop)
        return
    loader = _loader(facts, loop)
    if loader is None:
        yield Decline(
            "nb2ddp cannot find the DataLoader of this loop, so its batches cannot be shared out", loop
        )
        return
    model = models[0].func
    assert isinstance(model, cst.Name)
    statement = facts.top_statement(loop)
    ddp_model = facts.our("ddp_model")
    yield Need("wrap_ddp", "False")
    yield Need("check_replicas")
    yield Need("share_batches")
    share = facts.our("share_batches")
    yield Edit(
        loader, "each rank takes its share of every batch", lambda node: cstkit.wrapped_call(share, node)
    )  # type: ignore[arg-type]
    yield Insert(
        statement,
        "before",
        f"{ddp_model} = {facts.our('wrap_ddp')}({model.value})  # nb2ddp: `{model.value}` itself stays as it is",
        "train through one DDP wrapper",
    )
    for call in models:
        yield Edit(call.func, "gradients are averaged over the ranks", lambda _: cst.Name(ddp_model))
    yield from _reports(facts, backward.func.value, loop)
    yield Insert(
        statement,
        "after",
        f"{facts.our('check_replicas')}({ddp_model})",
        "compare the trained parameters of all ranks",
    )


def _is_trained_call(facts: Facts, call: cst.Call, loop: cst.CSTNode) -> bool:
    """Not under ``with torch.no_grad()``."""
    for parent in facts.parents(call):
        if parent is loop:
            return True
        if isinstance(parent, cst.With) and any(
            "no_grad" in cstkit.code_of(item.item) or "inference_mode" in cstkit.code_of(item.item)
            for item in parent.items
        ):
            return False
    return False


def _loader(facts: Facts, loop: cst.For | cst.While) -> cst.Call | None:
    """The ``DataLoader(...)`` call whose batches a loop takes, through enumerate, tqdm and the like."""
    if isinstance(loop, cst.While):
        return None
    source: cst.BaseExpression = loop.iter
    for _ in range(8):
        if isinstance(source, cst.Name):
            binding = facts.binding(source)
            if binding is None or binding.value is None:
                return None
            source = binding.value
        elif isinstance(source, cst.Call):
            if facts.kind(source) == "loader":
                return source
            if facts.qualified(source.func).rpartition(".")[2] not in _ITERATING or not source.args:
                return None
            source = source.args[0].value
        else:
            return None
    return None


def _reports(facts: Facts, loss: cst.BaseExpression, loop: cst.CSTNode) -> Iterator[Finding]:
    """The loss, wherever the loop reads it for people and not for gradients."""
    if not isinstance(loss, cst.Name):
        return
    mean = facts.our("mean_over_ranks")
    for use in facts.uses(loss.value, loop):
        if use is loss or _feeds_gradient(facts, use, loss.value):
            continue
        yield Need("mean_over_ranks")
        yield Edit(use, "report the mean over the ranks", lambda node: cstkit.wrapped_call(mean, node))  # type: ignore[arg-type]


def _feeds_gradient(facts: Facts, use: cst.Name, loss: str) -> bool:
    parent = facts.parent(use)
    if isinstance(parent, cst.Attribute) and parent.attr.value == "backward":
        return True
    for around in facts.parents(use):
        if isinstance(around, cst.Assign):
            return any(isinstance(t.target, cst.Name) and t.target.value == loss for t in around.targets)
        if isinstance(around, cst.BaseSmallStatement):
            return False
    return False


rule = Rule("loops", __doc__, find)
