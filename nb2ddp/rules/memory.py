"""Note a model whose copy does not fit on each GPU: an estimate from the model's name and how it is loaded.

No code is changed. ``--gpu-memory`` sets the memory of one GPU, ``--nproc`` their number. The note names the
strategy that makes room: ``fsdp`` shards the model over the GPUs, which train at once; ``balanced`` spreads it over
them in one process, no faster than one GPU. With ``fsdp`` a quantized model is loaded whole by each rank before it is
sharded; of one in 16 bits each rank loads its share. ``generate()`` gathers the whole model on each GPU. Settings are
followed through variables, dicts and parameters; where one cannot be seen, the note gives both figures.

.. code-block:: diff

     from unsloth import FastLanguageModel
     model, tokenizer = FastLanguageModel.from_pretrained("org/Model-70B", load_in_4bit=True)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.sharding import refusals
from nb2ddp.analysis.training_loops import backward_calls, trains_whole
from nb2ddp.options import Options, Strategy
from nb2ddp.rewriting.findings import Finding, Need, Note, TooLarge
from nb2ddp.source import cst_nodes

# GiB for each billion parameters: weights, with the layers that stay in 16 bits and the scales of the blocks.
_PER_BILLION = {4: 0.65, 8: 1.1, 16: 1.87, 32: 3.73}
_REST = 2.0  # GiB: CUDA itself, the adapter with its optimizer, activations of a small batch
_LOADING = 0.5  # GiB: CUDA itself
_QUANTIZED = {4: re.compile("(?i)4[-_]?bit|int4|awq|gptq|mxfp4|nf4"), 8: re.compile("(?i)8[-_]?bit|fp8")}
_WIDTHS = {"float16": 16, "bfloat16": 16, "half": 16, "float32": 32, "float": 32}


@dataclass(frozen=True)
class Estimate:
    """The memory that one load of a model takes: GiB on each GPU by how it may be loaded.

    ``gathered``: with ``fsdp``, what it takes while a rank has the whole model beside its share.
    """

    call: cst.Call
    billions: float
    needs: Mapping[str, float]
    gathered: float

    def __str__(self) -> str:
        parts = [f"{how}: about {needed:.0f} GiB on each GPU" for how, needed in self.needs.items()]
        return f"{self.billions:g} billion parameters, {', or '.join(parts)}"


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    if options.strategy == "fsdp" and any(_loads_share(facts, call) for call in facts.live_calls):
        yield Need("loads_share", "True")
    for estimate in estimates(facts, options):
        if max(estimate.needs.values()) > options.gpu_memory:
            fits = "; the smaller one fits" if min(estimate.needs.values()) <= options.gpu_memory else ""
            strategy, advice = _advice(facts, options, estimate)
            why = f"{estimate}, which has {options.gpu_memory:g} (--gpu-memory){fits}. {advice}"
            yield Note(why, estimate.call, None if fits else TooLarge(strategy))
    yield from _gathered(facts, options) if options.strategy == "fsdp" else ()


def _gathered(facts: Facts, options: Options) -> Iterator[Note]:
    """Note where the ranks generate with a model that does not fit one GPU whole."""
    taken = max((estimate.gathered for estimate in estimates(facts, options)), default=0)
    for call in facts.live_calls if taken > options.gpu_memory else ():
        if facts.method(call) == "generate" and facts.gathers(call):
            why = f"generate() gathers the whole model on each GPU, about {taken:.0f} GiB with its share, and one has"
            instead = "delete this, and generate in a run of its own from what is saved"
            yield Note(f"{why} {options.gpu_memory:g} (--gpu-memory): {instead}", call)


def _advice(facts: Facts, options: Options, estimate: Estimate) -> tuple[Strategy, str]:
    """Return the strategy that makes room for a model, with the reason; ``balanced`` where it cannot be told."""
    gpus = f"{options.nproc} GPUs"
    balanced = "`--strategy balanced` spreads one model over all GPUs in one process: no faster than one GPU, and room"
    if options.strategy == "fsdp":
        return "balanced", f"{balanced} for the model; or take more GPUs (--nproc)"
    if options.nproc > 1 and next(refusals(facts.once(Facts.sharded)), None) is None:
        others = estimates(facts, options.with_(strategy="fsdp"))
        sharded = next(max(other.needs.values()) for other in others if other.call is estimate.call)
        if sharded <= options.gpu_memory:
            fsdp = f"`--strategy fsdp` shards it over {gpus}, about {sharded:.0f} GiB on each, and they train at once"
            return "fsdp", f"{fsdp}; `--strategy balanced` makes room in one process, no faster than one GPU"
    return "balanced", f"{balanced} for the model"


def _loads_share(facts: Facts, call: cst.Call) -> bool:
    """Return whether each rank may load its share of a model: all in 16 bits, whole nowhere before it is sharded."""
    if not facts.uses_unsloth or facts.method(call) != "from_pretrained" or facts.kind(call) != "model":
        return False
    if facts.is_after_training(call) or facts.switch(call, "full_finetuning") != {False}:
        return False
    return _widths(facts, call) == {16} and not any(map(partial(_reads_weights, facts), facts.live_calls))


def _reads_weights(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call needs the weights before a Trainer has sharded them: generation, DoRA, LoftQ."""
    if facts.method(call) == "generate":
        return not facts.gathers(call) and not facts.is_after_training(call)
    if facts.switch(call, "use_dora") != {False}:
        return True
    start, (given, loftq) = facts.argument(call, "init_lora_weights")[1], facts.argument(call, "loftq_config")
    code = "True" if start is None else cst_nodes.code_of(facts.value(start) or start)
    uses_loftq = given and not cst_nodes.is_word(facts.value(loftq), "None")
    return uses_loftq or code not in ("True", "False", '"gaussian"')


def estimates(facts: Facts, options: Options) -> Iterator[Estimate]:
    """Yield an estimate for each model that is loaded before training and tells its size by its name."""
    if options.strategy == "balanced":
        return
    for call in facts.live_calls:
        if facts.method(call) not in ("from_pretrained", "from_config") or facts.kind(call) != "model":
            continue
        adapts = facts.kind(cst_nodes.given(call, 0, "model")) == "model"  # PeftModel's, of another model
        package = facts.qualified(call.func).partition(".")[0]  # another one may keep its models elsewhere
        adapts |= facts.is_of_import(call.func) and package not in libraries.MAPPING_PACKAGES
        billions = libraries.billions(facts.loaded_name(call))
        if billions is None or adapts or facts.is_after_training(call):
            continue
        cases = _weight_cases(facts, call)
        if _trains_whole(facts, call):  # a weight, its gradient, and two states of the optimizer
            widths = sorted(_plain_widths(facts, call))
            cases = {f"all trained in {width} bits": 4 * _PER_BILLION[width] for width in widths}
        ranks = options.nproc if options.strategy == "fsdp" else 1
        needs = {how: billions * per_billion / ranks + _REST for how, per_billion in cases.items()}
        weights = max(_weight_cases(facts, call).values()) * billions
        if ranks > 1 and not _loads_share(facts, call):  # each rank loads it whole, and keeps its share
            needs = {how: max(needed, weights + _LOADING) for how, needed in needs.items()}
        yield Estimate(call, billions, needs, weights + weights / ranks + _REST)


def _trains_whole(facts: Facts, call: cst.Call) -> bool:
    """Return whether all weights are trained, with no adapter and in full precision."""
    if facts.qualified(call.func).partition(".")[0] in libraries.UNSLOTH_PACKAGES:
        return facts.switch(call, "full_finetuning") == {True}
    trains = bool(facts.train_calls or backward_calls(facts))
    freezes = any(target.attr.value == "requires_grad" for target in facts.attribute_targets)
    return trains and not freezes and _quantized_widths(facts, call) == {0} and trains_whole(facts, [call])


# ---- weights alone ------------------------------------------------------------------------------


def _weight_cases(facts: Facts, call: cst.Call) -> dict[str, float]:
    """Return how the weights may be loaded, each with the GiB that a billion parameters take."""
    widths = sorted(_widths(facts, call))
    how = "{} bits" if len(widths) == 1 else "if it is loaded in {} bits"
    return {how.format(width): _PER_BILLION[width] for width in widths}


def _widths(facts: Facts, call: cst.Call) -> set[int]:
    """Return the bits of a weight; several where what decides cannot be seen."""
    quantized = _quantized_widths(facts, call)
    return (quantized - {0}) | (_plain_widths(facts, call) if 0 in quantized else set())


def _quantized_widths(facts: Facts, call: cst.Call) -> set[int]:
    """Return the bits of a quantized weight; 0 stands for none that is quantized."""
    name = facts.loaded_name(call)
    for width, pattern in _QUANTIZED.items():
        if pattern.search(name):
            return {width}
    is_unsloth = facts.qualified(call.func).partition(".")[0] in libraries.UNSLOTH_PACKAGES
    if is_unsloth and facts.switch(call, "load_in_16bit") == {True}:
        return {0}
    eight, fp8 = (facts.switch(call, keyword) for keyword in ("load_in_8bit", "load_in_fp8"))
    if {True} in (eight, fp8):
        return {8}
    by_default = is_unsloth and "SentenceTransformer" not in facts.qualified(call.func)
    four = facts.switch(call, "load_in_4bit", by_default)
    found = {n for n, seen in ((8, True in eight | fp8), (4, True in four), (0, False in four)) if seen}
    has_config, config = facts.argument(call, "quantization_config")
    if has_config and not (config is not None and cst_nodes.is_word(facts.value(config), "None")):
        found = (found - {0}) | _configured_widths(facts, facts.value(config))
    return found


def _configured_widths(facts: Facts, config: cst.BaseExpression | None) -> set[int]:
    """Return the bits that a ``BitsAndBytesConfig`` or the like asks for; 0 or 4 where it cannot be seen."""
    if not isinstance(config, cst.Call):
        return {0, 4}
    for keyword, width in (("load_in_4bit", 4), ("load_in_8bit", 8)):
        asked = facts.switch(config, keyword)
        if True in asked:
            return {0, width} if False in asked else {width}
    for keyword in ("bits", "nbits", "weights"):
        value = facts.value(facts.argument(config, keyword)[1])
        number = re.search(r"\d+", cst_nodes.code_of(value)) if value is not None else None
        if number is not None:
            return {min(_PER_BILLION, key=lambda width: abs(width - int(number[0])))}
    return {0} if facts.qualified(config.func).endswith("BitsAndBytesConfig") else {4}


def _plain_widths(facts: Facts, call: cst.Call) -> set[int]:
    """Return the bits of a weight that is not quantized, by ``dtype``."""
    package = facts.qualified(call.func).partition(".")[0]
    for keyword in ("dtype", "torch_dtype"):
        value = facts.value(facts.argument(call, keyword)[1])
        if value is not None and not cst_nodes.is_word(value, "None"):
            branches = [value.body, value.orelse] if isinstance(value, cst.IfExp) else [value]
            words = [cst_nodes.string_value(part) or facts.qualified(part) for part in branches]
            # "auto" takes what the checkpoint has, 16 bits mostly
            return {_WIDTHS.get(word.rpartition(".")[2], 16) for word in words}
    # Transformers 4 loads in 32 bits unless told otherwise, 5 as the checkpoint is; Unsloth in 16.
    return {16} if package in libraries.UNSLOTH_PACKAGES else {16, 32}
