"""Load a whole copy of the model onto each rank's GPU.

``device_map="auto"`` or ``"balanced"`` spreads one model over every visible GPU; under DDP each process
keeps a whole copy, so the map must name one device. Unsloth before 2026.2 put both ranks on GPU 0 when
nothing was said, and so does a ``pipeline()`` of Transformers.

.. code-block:: diff

     from unsloth import FastLanguageModel
    -model, tokenizer = FastLanguageModel.from_pretrained("m")
    +model, tokenizer = FastLanguageModel.from_pretrained("m", device_map={"": local_rank})
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.training_arguments import libraries_know_ranks
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Decline, Edit, Finding, Note
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes

_SPREAD = ("balanced", "auto", "sequential", "balanced_low_0")
_QUANTIZED = ("load_in_4bit", "load_in_8bit", "quantization_config")


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    yield from _models(facts, options)
    if options.strategy == "balanced":
        return
    if libraries_know_ranks(facts, options.strategy):  # else a rank sees its own GPU alone
        for call in facts.live_calls:
            if facts.qualified(call.func) in libraries.PIPELINES and not facts.is_after_training(call):
                how = "the pipeline's model on each rank's GPU"  # which takes GPU 0 by itself, or the CPU
                yield Edit.inside(call.func, how, helper(facts, "own_gpu"))
                if facts.keyword(call, "device_map") is not None:
                    yield Edit.items(call, how, {"device_map": _own_gpu(facts)})
        yield from _spread_elsewhere(facts)


def _models(facts: Facts, options: Options) -> Iterator[Finding]:
    how = "the model on each rank's GPU, before it is sharded"
    if options.strategy == "ddp":
        how = "a whole copy of the model on each rank's GPU"
    for call in facts.live_calls:
        loads = facts.method(call) == "from_pretrained" and facts.kind(call) == "model"
        if not loads or facts.is_after_training(call):
            continue
        given = facts.keyword(call, "device_map")
        is_unsloth = facts.qualified(call.func).partition(".")[0] in libraries.UNSLOTH_PACKAGES
        if given is None and not is_unsloth and not any(facts.keyword(call, q) for q in _QUANTIZED):
            continue
        value = f'{{"": {facts.our("local_rank")}}}' if is_unsloth else _own_gpu(facts)
        if options.strategy == "balanced":
            comment = "nb2ddp: one model, spread over all GPUs"
            yield Edit.items(call, comment.removeprefix("nb2ddp: "), {"device_map": '"balanced"'}, comment)
            continue
        may_have, element = facts.argument(call, "device_map")
        if given is None and may_have:
            if element is not None:
                yield Edit.to(element, how, value)
            elif libraries_know_ranks(facts, options.strategy):
                why = "nb2ddp cannot tell whether a device_map is among these arguments; write them out in the call"
                yield Decline(why, call)
            continue
        text = cst_nodes.string_value(given)
        if text in _SPREAD and text != "auto":  # which puts it onto one GPU where it fits
            held = "the whole model" if options.strategy == "ddp" else "a share of the model"
            why = f'device_map="{text}" lays a model out over the GPUs that a process sees'
            yield Note(f"{why}: each rank sees one, which holds {held}", call)
        comment = f"nb2ddp: {how}".replace("copy of the model", "copy")
        yield Edit.items(call, how, {"device_map": value}, comment)


def _own_gpu(facts: Facts) -> str:
    """Return the code of a map to this rank's GPU; Transformers takes a number for a GPU, also where there is none."""
    return f'{{"": {facts.our("local_rank")} if torch.cuda.is_available() else "cpu"}}'


def _spread_elsewhere(facts: Facts) -> Iterator[Finding]:
    """Replace ``"auto"`` and its like in other calls of libraries, and in dicts that are passed on to one."""
    spread = (text for text in facts.strings if cst_nodes.string_value(text) in _SPREAD)
    for text in (text for text in spread if not facts.is_dead(text) and not facts.is_after_training(text)):
        item, call = facts.parent(text), facts.around(text, cst.Call)
        named = isinstance(item, cst.DictElement) and cst_nodes.string_value(item.key) == "device_map"
        if call is not None and facts.keyword(call, "device_map") is text:
            name = facts.qualified(call.func).removesuffix(".from_pretrained")
            known = name.partition(".")[0] in libraries.MAPPING_PACKAGES and name not in libraries.PIPELINES
            named = known and facts.kind(call) != "model" and not name.endswith(libraries.NO_MODEL)
        if named:
            yield Edit.to(text, "a whole copy on each rank's GPU", _own_gpu(facts))
