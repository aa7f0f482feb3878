"""Wrap the Trainer's model with DDP when training starts, and compare the ranks afterwards.

The wrapper has a name of its own, so that every other use of ``model`` stays as it is. It is made late
because a Trainer's constructor may cast or replace adapter parameters. Afterwards the ranks compare their
trainable parameters: silent divergence is the worst that can happen.

Ranks take the notebook's micro-batches in turns, and wait for the one with most tokens. With `--batches dealt` the
micro-batches of each optimizer step are dealt to the ranks by length. `--batches even` makes other micro-batches of
the step's samples, so that all ranks have equally many tokens: the same run in fp32 (losses equal to 1e-6), while in
bf16 and fp16 a micro-batch of other rows rounds otherwise (5e-4 at a loss of 10). Both are done where the loss is a
mean over the step's tokens, which the run finds and says.

DDP waits for a gradient of every trained parameter. Where a step may leave some out (experts, towers for
images or sound), they get a gradient of zero.

.. code-block:: diff

     from trl import SFTTrainer
     t = SFTTrainer(model)
    +ddp_model = ddp.wrap_trainer(t)  # nb2ddp: train through one DDP wrapper; `t.model` is still the plain model
     trainer_stats = t.train()
    +ddp.check_replicas(ddp_model)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Decline, Edit, EvenBatches, Finding, Insert, Note, Rule
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement

# Trainers whose loss is a mean over the tokens of a step, as Transformers' and TRL's is.
_MEAN_OVER_TOKENS = re.compile(r"(?:Unsloth|SFT|Seq2Seq)?Trainer")
_LOADERS = frozenset({"get_train_dataloader", "get_eval_dataloader", "get_test_dataloader"})
_HOW = {
    "dealt": "; the notebook's micro-batches are dealt to the ranks by length",
    "even": "; each step's samples are shared out by their lengths, which rounds losses otherwise in bf16 or fp16",
}


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    yield from ()
    for call in facts.train_calls:
        trainer = facts.trained(call)
        assert trainer is not None
        if not isinstance(trainer, cst.Name | cst.Attribute):
            yield Decline(
                "this Trainer has no name, so its model cannot be wrapped; assign it to a variable before train()",
                call,
            )
            continue
        statement = facts.statement(call)
        code = cst_nodes.code_of(trainer)
        check = helper(facts, "check_replicas")
        if options.strategy == "fsdp":
            use = f"{helper(facts, 'use_shards')}({code})  # nb2ddp: each rank trains with its share of the model"
            yield Insert(statement, "before", use, "train the model that Unsloth has sharded")
            yield from _checked(call, statement, check, f"{code}.model")
            continue
        if options.wrap == "explicit" and not _wraps_itself(facts, trainer):
            ddp_model = facts.our("ddp_model")
            in_turns = options.batches == "notebook"
            arguments = code if in_turns else f'{code}, batches="{options.batches}"'
            reason = "" if in_turns else _in_turns(facts, trainer)
            why = "train through one DDP wrapper"
            if reason:
                why += f"; ranks take the notebook's micro-batches in turns ({reason})"
            elif not in_turns:
                why += _HOW[options.batches]
            yield Insert(
                statement,
                "before",
                f"{ddp_model} = {helper(facts, 'wrap_trainer')}({arguments})"
                f"  # nb2ddp: train through one DDP wrapper; `{code}.model` is still the plain model",
                why,
                None if in_turns or reason else EvenBatches(),
            )
            yield from _checked(call, statement, check, ddp_model)
            if facts.is_deleted(facts.scope(call)):
                code = f"del {ddp_model}  # nb2ddp: it holds the model too, which is to be freed"
                yield Insert(statement, "after", code, "the notebook frees the model's memory")
            continue
        if options.wrap == "explicit":
            yield Note(
                "this Trainer makes the model, or its loss holds it, so the Trainer wraps it with DDP, not the script",
                call,
            )
        yield from _checked(call, statement, check, f"{code}.model")
    yield from _prepared(facts, options)
    if options.wrap == "trainer" and options.strategy == "ddp":
        yield from _tell_the_trainer(facts)


def _in_turns(facts: Facts, trainer: cst.Name | cst.Attribute) -> str:
    """Return why a Trainer's samples are not shared out by length, as far as the notebook shows it.

    The run looks at the loss, the collator and the lengths too, and says what it does.
    """
    name = facts.trainer_class(trainer)
    if "GRPO" in name:
        return "GRPO keeps the completions of a prompt together"
    if name.endswith("Trainer") and not _MEAN_OVER_TOKENS.fullmatch(name):
        return f"the loss of {name} is not a mean over the tokens of a step"
    for call in facts.live_calls:
        if facts.kind(call) != "arguments":
            continue
        if _is_true(facts.keyword(call, "packing")):
            return "packed rows are full"
        strategy = cst_nodes.string_value(facts.keyword(call, "train_sampling_strategy"))
        if strategy == "group_by_length" or _is_true(facts.keyword(call, "group_by_length")):
            return "rows are grouped by length"
    if any(facts.streams(call) for call in facts.live_calls if not facts.is_after_training(call)):
        return "the data are streamed"
    return ""


def _is_true(value: cst.BaseExpression | None) -> bool:
    return value is not None and cst_nodes.code_of(value) == "True"


def _prepared(facts: Facts, options: Options) -> Iterator[Finding]:
    """Prepare a Trainer that evaluates or gives a loader before it trains, or that wraps its model by itself.

    Its loss has one process's weight then too: the Trainer multiplies a mean by the number of ranks.
    """
    prepared: set[tuple[str, object]] = set()
    for call in facts.live_calls:
        if not isinstance(call.func, cst.Attribute) or facts.kind(call.func.value) != "trainer":
            continue
        trainer, method = call.func.value, facts.method(call)
        code = cst_nodes.code_of(trainer)
        # a name may be given to another Trainer, and an attribute be one of another object
        which = (code, facts.binding(trainer) if isinstance(trainer, cst.Name) else facts.scope(call))
        wraps = options.strategy == "ddp" and (options.wrap != "explicit" or _wraps_itself(facts, trainer))
        trains = (
            wraps and method in ("train", "hyperparameter_search") and _is_of_transformers(facts, trainer)
        )
        loads = method in _LOADERS and _is_made_here(facts, trainer, call)
        if which not in prepared and (trains or loads or method in ("evaluate", "predict")):
            why = "the loss of one process" if trains else "evaluate each sample once over all ranks"
            why = "the notebook's whole batches for its own code" if loads else why
            prepare = f"{helper(facts, 'prepare_trainer')}({code})  # nb2ddp: {why}"
            yield Insert(facts.statement(call), "before", prepare, why)
        if facts.is_collective(call) or loads:
            prepared.add(which)


def _is_made_here(facts: Facts, trainer: cst.BaseExpression, call: cst.Call) -> bool:
    """Return whether a Trainer's name is bound where it is used: a callback's method runs later, in its training."""
    binding = facts.binding(trainer) if isinstance(trainer, cst.Name) else None
    return binding is not None and facts.scope(binding.node) is facts.scope(call)


def _checked(call: cst.Call, statement: Statement, check: str, model: str) -> Iterator[Finding]:
    """Compare the ranks when training has ended; nothing is run after a ``return``."""
    why = "compare the trained parameters of all ranks"
    if isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[-1], cst.Return):

        def returned(node: cst.CSTNode) -> cst.CSTNode:
            trained = cst.ensure_type(node, cst.Call)
            return cst.Call(
                cst_nodes.expression(check), [cst.Arg(cst_nodes.expression(model)), cst.Arg(trained)]
            )

        yield Edit(call, why, returned)
    else:
        yield Insert(statement, "after", f"{check}({model})", why)


def _has_towers(facts: Facts) -> bool:
    """Return whether a step may leave a trainable parameter without a gradient: a vision tower, given only text."""
    return any(
        name.rpartition(".")[0].endswith(libraries.MULTIMODAL_CLASSES)
        for name in map(facts.qualified, (call.func for call in facts.live_calls))
    )


def _is_of_transformers(facts: Facts, trainer: cst.BaseExpression) -> bool:
    """Match Transformers' Trainers and the notebook's own: TRL and Sentence Transformers see to their losses."""
    made = _made(facts, trainer)
    package = facts.qualified(made.func).partition(".")[0] if isinstance(made, cst.Call) else ""
    return package == "transformers" or package in facts.bound_names


def _made(facts: Facts, trainer: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return what a name of a trainer is bound to."""
    if not isinstance(trainer, cst.Name):
        return trainer
    binding = facts.binding(trainer)
    return binding.value if binding is not None else None


def _wraps_itself(facts: Facts, trainer: cst.BaseExpression) -> bool:
    """Sentence Transformers swap the model inside their loss; ``model_init`` makes another one."""
    value = _made(facts, trainer)
    if not isinstance(value, cst.Call):
        return False
    makes_model = facts.keyword(value, "model_init") is not None  # when training starts
    return makes_model or facts.qualified(value.func).partition(".")[0] == "sentence_transformers"


def _tell_the_trainer(facts: Facts) -> Iterator[Finding]:
    value = "True" if _has_towers(facts) else "False"
    for call in facts.live_calls:
        if facts.loads_model(call) and libraries.has_experts(facts.loaded_name(call)):
            why = "with --wrap trainer the run stops at a step that leaves out one of this model's experts"
            yield Note(f"{why}; without it the run goes on", call)
        if facts.kind(call) == "arguments" and facts.keyword(call, "ddp_find_unused_parameters") is None:

            def told(node: cst.CSTNode) -> cst.CSTNode:
                assert isinstance(node, cst.Call)
                return cst_nodes.with_keyword(node, "ddp_find_unused_parameters", value)

            yield Edit(call, "left unset it fails with gradient checkpointing", told)


rule = Rule("wrap", __doc__, find)
