"""Say what a notebook lacks that runs no training which can be followed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import libcst as cst
from libcst import matchers

from nb2ddp.analysis import frameworks
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.shell_commands import shell_calls
from nb2ddp.analysis.training_loops import optimizers
from nb2ddp.source import cst_nodes

_START = "this notebook does not train"
_NONE = "nb2ddp sees no training here that it could convert"
_OUT_OF_SIGHT = "training in modules that it imports is not in sight"
_UNSEEN = "nb2ddp cannot follow the training of"
_TRAINS = re.compile(r"\.backward\(|\b\w*trainer\.train\(")
_GRADIENTS = re.compile(r"(?:torch\.func|functorch)\.grad(?:_and_value)?")
_LOADS = re.compile(r"from_pretrained|pipeline|hub|(?:weights|pretrained)=(?!None|False)")
_BY_NAME = re.compile(r"command `[^`]*(?:train|tun)")
_Found = Iterator[tuple[str, cst.CSTNode]]


def missing(facts: Facts) -> tuple[str, cst.CSTNode | None]:
    """Return what is missing for training, and the place that shows it best.

    For a notebook without a training call and without a training loop (`Facts.last_collective` is None).
    """
    text = matchers.Expr(matchers.SimpleString() | matchers.ConcatenatedString())
    if all(matchers.matches(top, matchers.SimpleStatementLine([text])) for top in facts.top_statements):
        return f"{_START}: its cells hold no code", None
    nothing = f"{_NONE}: no Trainer that it knows, no loop with backward(), and no fit() of a model; {_OUT_OF_SIGHT}"
    return next(_found(facts), (nothing, None))


def _found(facts: Facts) -> _Found:
    """Yield what stands where training is looked for, what says most first."""
    yield from _of(training for training in frameworks.trainings(facts) if not training.is_beside)
    yield from _of(command for command in frameworks.commands(facts) if frameworks.STARTS in command.why)
    yield from _written(facts)
    yield from _of(sorted(frameworks.commands(facts), key=lambda command: not _BY_NAME.search(command.why)))
    yield from _trainer(facts)
    yield from _of(training for training in frameworks.unknown_trainings(facts) if training.package)
    yield from _loop(facts)
    yield from _of((*frameworks.unknown_trainings(facts), *frameworks.trainings(facts)))
    yield from _stepped(facts)
    yield from _inference(facts)


def _of(trainings: Iterable[frameworks.Training]) -> _Found:
    return ((training.why, training.call) for training in trainings)


def _trainer(facts: Facts) -> _Found:
    """Find a Trainer whose train() is never called."""
    for call in facts.calls:
        name = facts.qualified(call.func).rpartition(".")[2]
        of_lightning, is_trainer = facts.is_lightning_class(call.func), facts.is_trainer_class(call.func)
        if is_trainer and facts.train_calls:
            why = "its train() stands in a function that nb2ddp sees no call of"
            yield f"{_UNSEEN} this {name}: {why}; call it by its name in a cell", call
        elif of_lightning or is_trainer:
            trains, why = "fit" if of_lightning else "train", "no call of its {}() is in sight"
            if any(node.attr.value == trains for node in facts.attributes):
                why = "nb2ddp cannot tell what calls its {0}(): give it a name, and call {0}() of that on its own line"
            yield f"{_NONE}: this {name} is made, and {why.format(trains)}", call


def _loop(facts: Facts) -> _Found:
    """Find a backward() that is not in a loop over batches; one in a loop says more, which nothing calls."""
    for call in sorted(filter(facts.gives_gradients, facts.calls), key=lambda c: not facts.training_loop(c)):
        name = facts.method(call) or "grad"
        if facts.is_dead(call):
            yield f"{_START}: the only {name}() is in code that never runs", call
        elif facts.training_loop(call) is not None:
            why = f"no call of the function that this {name}() stands in is in sight; call it by its name"
            yield f"{_NONE}: {why}", call
        else:
            yield f"{_NONE}: this {name}() is in no loop over batches that nb2ddp can follow", call


def _stepped(facts: Facts) -> _Found:
    """Find what takes steps with gradients that no backward() gives: those of torch.func, say."""
    if any(facts.method(call) == "step" for call in facts.live_calls):
        why = "no backward() gives the gradients that it steps with. Compute them with loss.backward()"
        yield from ((f"{_UNSEEN} what this optimizer trains: {why}", made) for made in optimizers(facts))
    for made in facts.live_calls:
        name = _GRADIENTS.fullmatch(facts.qualified(made.func))
        uses = (call for call in facts.live_calls if name and facts.is_made_of(call.func, made))
        if any(next(facts.loops_to(call), None) is not None for call in uses):
            how = "compute the gradients of what this trains, if it trains anything, with loss.backward()"
            yield f"nb2ddp cannot follow what {name and name[0]}() is for here: {how}", made


def _written(facts: Facts) -> _Found:
    """Find a training loop in a module that a cell writes: by ``%%writefile engine.py``, or as a text."""
    others = [shell for shell in shell_calls(facts) if shell.kind == "cell" and not shell.is_shell]
    for shell in others:
        if shell.name == "writefile" and _TRAINS.search(shell.body):
            yield f"{_UNSEEN} {shell.file}, which %%writefile writes here: {_instead(shell.body)}", shell.call
    for string in facts.strings:
        text = cst_nodes.string_value(string) or ""
        of_module = text.count("\n") > 3 and _TRAINS.search(text) and "import " in text
        if of_module and not any(facts.contains(shell.call, string) for shell in others):
            yield f"{_UNSEEN} the code in this text: {_instead(text)}", string


def _instead(code: str) -> str:
    """Return what to do with the code of a module that trains."""
    if "torch_xla" in code:
        return "it trains on a TPU, and nb2ddp converts training on CUDA GPUs"
    if "torch.distributed" in code or "accelerate" in code:
        return "start it with torchrun where it divides its batches itself, or put its code into a cell"
    return "put its code into a cell"


def _inference(facts: Facts) -> _Found:
    """Find a model that is loaded and then only used, as for inference."""
    for call in facts.live_calls:
        if facts.loads_model(call) or facts.qualified(call.func) == "transformers.pipeline":
            does = "loads" if _LOADS.search(cst_nodes.code_of(call)) else "makes"
            text = f"{_NONE}: it {does} a model here, and no cell has a Trainer that it knows or a loop with backward()"
            yield f"{text}. Inference and evaluation run on one GPU as they are; {_OUT_OF_SIGHT}", call
