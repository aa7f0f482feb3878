"""Say what a notebook lacks that runs no training which can be followed."""

from __future__ import annotations

import re

import libcst as cst
from libcst import matchers

from nb2ddp.analysis import frameworks
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.shell_commands import shell_calls
from nb2ddp.analysis.training_loops import optimizers
from nb2ddp.source import cst_nodes

_START = "this notebook does not train"
_NONE = f"{_START}, as far as nb2ddp can see"
_UNSEEN = "nb2ddp cannot follow the training of"
_TRAINS = re.compile(r"\.backward\(|\b\w*trainer\.train\(")


def missing(facts: Facts) -> tuple[str, cst.CSTNode | None]:
    """Return what is missing for training, and the place that shows it best.

    For a notebook without a training call and without a training loop (`Facts.last_collective` is None).
    """
    texts = matchers.SimpleStatementLine(
        [matchers.Expr(matchers.SimpleString() | matchers.ConcatenatedString())]
    )
    if all(matchers.matches(statement, texts) for statement in facts.top_statements):
        return f"{_START}: its cells hold no code", None
    return (
        _first(*(training for training in frameworks.trainings(facts) if not training.is_beside))
        or _first(*(command for command in frameworks.commands(facts) if command.starts_processes))
        or _written(facts)
        or _first(*frameworks.commands(facts))
        or _trainer(facts)
        or _first(*(training for training in frameworks.unknown_trainings(facts) if training.package))
        or _loop(facts)
        or _first(*frameworks.unknown_trainings(facts), *frameworks.trainings(facts))
        or _stepped(facts)
        or _inference(facts)
        or (f"{_NONE}: no Trainer, no loop with backward(), and no fit() of a model", None)
    )


def _trainer(facts: Facts) -> tuple[str, cst.CSTNode] | None:
    """Find a Trainer whose train() is never called."""
    for call in facts.calls:
        if facts.is_lightning_class(call.func):
            return f"{_NONE}: this Trainer is made, and no call of its fit() is in sight", call
        if facts.is_trainer_class(call.func):
            name = facts.qualified(call.func).rpartition(".")[2]
            if facts.train_calls:
                why = "its train() stands in a function that nb2ddp sees no call of; call it by its name in a cell"
                return f"{_UNSEEN} this {name}: {why}", call
            return f"{_NONE}: this {name} is made, and no call of its train() is in sight", call
    return None


def _first(*found: frameworks.Training) -> tuple[str, cst.CSTNode] | None:
    return (found[0].why, found[0].call) if found else None


def _loop(facts: Facts) -> tuple[str, cst.CSTNode] | None:
    """Find a backward() that is not in a loop over batches."""
    for call in facts.calls:
        if facts.method(call) == "backward":
            if facts.is_dead(call):
                return f"{_START}: the only backward() is in code that never runs", call
            if facts.training_loop(call) is not None:
                why = (
                    "no call of the function that this backward() stands in is in sight; call it by its name"
                )
                return f"{_NONE}: {why}", call
            return f"{_NONE}: this backward() is in no loop over batches that nb2ddp can follow", call
    return None


def _stepped(facts: Facts) -> tuple[str, cst.CSTNode] | None:
    """Find an optimizer that takes steps with gradients that no backward() gives: those of torch.func, say."""
    for made in optimizers(facts):
        if any(facts.method(call) == "step" for call in facts.live_calls):
            why = "no backward() gives the gradients that it steps with. Compute them with loss.backward()"
            return f"{_UNSEEN} what this optimizer trains: {why}", made
    return None


def _written(facts: Facts) -> tuple[str, cst.CSTNode] | None:
    """Find a training loop in a module that a cell writes: by ``%%writefile engine.py``, or as a text."""
    for shell in shell_calls(facts):
        if shell.kind == "cell" and shell.name == "writefile" and _TRAINS.search(shell.body):
            file = shell.text.removeprefix("-a ").strip().strip("\"'")
            return f"{_UNSEEN} {file}, which %%writefile writes here: {_instead(shell.body)}", shell.call
    others = [s.call for s in shell_calls(facts) if s.kind == "cell" and s.name not in ("bash", "sh")]
    for string in facts.strings:
        if any(facts.contains(call, string) for call in others):
            continue
        text = cst_nodes.string_value(string) or ""
        if text.count("\n") > 3 and _TRAINS.search(text) and "import " in text:
            return f"{_UNSEEN} the code in this text: {_instead(text)}", string
    return None


def _instead(code: str) -> str:
    """Return what to do with the code of a module that trains."""
    if "torch_xla" in code:
        return "it trains on a TPU, and nb2ddp converts training on CUDA GPUs"
    if "torch.distributed" in code or "accelerate" in code:
        return (
            "start it with torchrun as it is where it divides its batches itself, or put its code into a cell"
        )
    return "put its code into a cell"


def _inference(facts: Facts) -> tuple[str, cst.CSTNode] | None:
    """Find a model that is loaded and then only used, as for inference."""
    for call in facts.live_calls:
        if facts.loads_model(call) or facts.qualified(call.func) == "transformers.pipeline":
            does = "makes" if facts.qualified(call.func).startswith("torch.nn.") else "loads"
            text = (
                f"{_NONE}: it {does} a model here, and no cell has a Trainer or a loop with backward(). Inference and "
                "evaluation run on one GPU as they are; training in modules that it imports is not in sight"
            )
            return text, call
    return None
