"""Replace the notebook's GPU, written as a number or ``"cuda:0"``, by this rank's GPU.

A notebook that names one number alone, 0 or not, means its only GPU. ``"cuda"`` is this rank's own already, and so is
where ``torch.load(path)`` loads what was saved from GPU 0, unless a ``map_location`` says otherwise.
CUDA_VISIBLE_DEVICES is set only where the script runs as one process: a mask with one device would put all ranks on
one GPU. So are RANK, WORLD_SIZE and what else torchrun sets: with the notebook's values every rank would be rank 0.

.. code-block:: diff

     import torch
    -batch = batch.to("cuda:0")
    -gpu_stats = torch.cuda.get_device_properties(0)
    +batch = batch.to(f"cuda:{local_rank}")
    +gpu_stats = torch.cuda.get_device_properties(local_rank)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.flow import pairs_of
from nb2ddp.analysis.init_place import first_below
from nb2ddp.analysis.shell_commands import shell_calls
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Decline, Edit, Finding, Note
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import last_name

_GPU = re.compile(r"cuda:(\d+)")
_KEYWORDS = ("device", "map_location", "accelerator")
_FORM = re.compile(r"cuda:(?:%[ds]|\{0?\})?")
MASK = "CUDA_VISIBLE_DEVICES"
_OF_A_RANK = libraries.LAUNCH_VARIABLES | {MASK}
_OTHER_GPU = '"{}" is one of several GPUs here, and a rank has one alone: it fails, or all put this there; write "cuda"'
_SPREAD = 'this spreads a model over several GPUs of one process, and a rank has one: put all of it on "cuda"'
_NO_CUDA = 'this is a GPU of another kind, and the script trains on CUDA GPUs alone: write "cuda" here'
# Functions of torch.cuda to which 0 is no device.
_NO_DEVICE = frozenset({"manual_seed", "manual_seed_all", "Event", "GradScaler", "autocast"})
_MASKED = "under torchrun every rank has a GPU of its own; the mask would put all on one"
_LAUNCHED = "torchrun tells each rank this; with the notebook's value it would take itself for another one"
_WHY = dict.fromkeys(_OF_A_RANK, _LAUNCHED) | {MASK: _MASKED}


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    local_rank, named = facts.our("local_rank"), list(_devices(facts))
    is_only = len({number for _, number in named}) == 1
    for node, number in named:
        if not number or (number != "0" and not is_only):
            yield Note(_OTHER_GPU.format(f"cuda:{number}"), node) if number else Decline(_SPREAD, node)
            continue
        text = f"f{node.quote}cuda:{{{local_rank}}}{node.quote}" if isinstance(node, cst.SimpleString) else ""
        yield Edit.to(node, "this rank's GPU", text or local_rank)
    texts = {text: cst_nodes.string_value(text) for text in facts.strings}
    kinds = [text for text, word in texts.items() if word in ("mps", "xpu", "cuda")]
    if kinds and not (named or any(facts.method(call) == "cuda" for call in facts.calls)):
        places = [a.value for c in facts.live_calls for a in c.args if _is_device(facts, c, a, "0")]
        made = [text for text in kinds if any(facts.is_made_of(place, text) for place in places)]
        others = made if "cuda" not in map(texts.get, made) else []
        yield from (Note(_NO_CUDA, other) for other in others[:1])
    yield from _variables(facts)
    for shell in shell_calls(facts):
        name, value = shell.variable(frozenset()) if shell.is_environment else ("", "")
        if value and name in _OF_A_RANK:
            yield from _line(facts, shell.call, name)


def _devices(facts: Facts) -> Iterator[tuple[cst.BaseExpression, str]]:
    """Yield what names a GPU by its number, and the number: ``"cuda:1"``, ``x.cuda(1)``, ``f"cuda:{gpu}"``."""
    for string in (*facts.strings, *facts.nodes(cst.FormattedString)):
        item, found = facts.parent(string), _GPU.fullmatch(cst_nodes.string_value(string) or "")
        is_key = isinstance(item, cst.DictElement) and item.key is string  # where it was saved from
        if found is not None and not is_key:
            yield string, found[1]
        elif (given := _put_into(facts, string)) is not None:
            yield from _numbers(facts, given)
    for call in facts.calls:
        for argument in (argument for argument in call.args if _is_device(facts, call, argument, "0")):
            numbers = _numbers(facts, argument.value)
            yield from (named for named in numbers if _is_device(facts, call, argument, named[1]))


def _put_into(facts: Facts, text: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return ``gpu`` of ``f"cuda:{gpu}"``, ``"cuda:%d" % gpu``, ``"cuda:{}".format(gpu)``, ``"cuda:" + str(gpu)``."""
    around = facts.parent(text) if _FORM.fullmatch(cst_nodes.string_value(text) or "") else text
    match around:
        case (
            cst.FormattedString([cst.FormattedStringText("cuda:"), cst.FormattedStringExpression(given)])
            | cst.BinaryOperation(right=cst.Call(cst.Name("str"), [cst.Arg(given)]) | given)
        ):
            return given
        case cst.Attribute() if (call := facts.called(around)) is not None:
            return cst_nodes.given(call, 0)
    return None


def _numbers(facts: Facts, node: cst.BaseExpression) -> Iterator[tuple[cst.BaseExpression, str]]:
    """Yield an expression whose value is a number, and that; of ``0 if torch.cuda.is_available() else -1`` the 0."""
    known = facts.value(node)
    chosen = known.body if isinstance(known, cst.IfExp) else known
    if isinstance(chosen, cst.Integer):
        yield (chosen if chosen is not known else node), chosen.value
    elif _is_spread(facts, node, known or node):
        yield node, ""


def _is_spread(facts: Facts, node: cst.BaseExpression, number: cst.BaseExpression) -> bool:
    """Return whether a loop computes the number of a GPU, ``i // 2``, and not of how many GPUs a process sees."""
    loops = [getattr(loop, "for_in", loop) for loop in facts.loops(number)]
    targets = [(o.iter, cst_nodes.code_of(o.target)) for o in loops if isinstance(o, cst.For | cst.CompFor)]
    taken = [of for of, code in targets if facts.loads_in(number) & {*re.findall(r"\w+", code)}]
    counts = frozenset(c for c in facts.live_calls if libraries.COUNTS_GPUS.search(last_name(c.func)))
    codes = {cst_nodes.code_of(facts.value(o) or o) for o in (*facts.nodes(cst.Name, within=number), *taken)}
    kinds = cst.BinaryOperation | (cst.Name if "range(" in str(codes) else cst.BinaryOperation)
    known = "1" in codes or facts.is_dead(node) or any(facts.is_made_of(o, counts) for o in (number, *taken))
    return bool(taken) and isinstance(number, kinds) and not known


def _is_device(facts: Facts, call: cst.Call, argument: cst.Arg, number: str) -> bool:
    """Return whether a number, as this argument, means a GPU."""
    name, method = facts.qualified(call.func), facts.method(call)
    if name.startswith("torch.cuda."):
        last = name.rpartition(".")[2]
        return last not in _NO_DEVICE and (number in "0" or "device" in last or "mem" in last)
    is_keyword = argument.keyword is not None and argument.keyword.value in _KEYWORDS
    is_keyword = is_keyword and (number in "0" or name in libraries.PIPELINES)
    return name == "torch.device" or is_keyword or method == "cuda" or (method == "to" and number in "0")


def _variables(facts: Facts) -> Iterator[Finding]:
    """Set and take away a rank's variables only outside torchrun, and read a mask that may not be set."""
    for user, name, reads in facts.environment(*_OF_A_RANK):
        if not reads and (isinstance(user, cst.Subscript) or isinstance(facts.parent(user), cst.Expr)):
            yield from _line(facts, user, name)
        elif reads and isinstance(user, cst.Subscript) and name == MASK:
            owner = cst_nodes.code_of(user.value)
            key = cst_nodes.code_of(user)[len(owner) + 1 : -1]
            yield Edit.to(user, "under torchrun the mask need not be set", f"{owner}.get({key})")
    for call in facts.live_calls:
        if facts.qualified(call.func) == "os.environ.update":
            given = [*pairs_of(call), *(pair for argument in call.args for pair in pairs_of(argument.value))]
            for name in (name for name, _ in given if name in _OF_A_RANK):
                why = f'set {name} on a line of its own, os.environ["{name}"] = ...: {_WHY[name]}'
                yield Decline(why, call)


def _line(facts: Facts, node: cst.CSTNode, name: str) -> Iterator[Finding]:
    """Yield edits that run the line of ``node`` only outside torchrun; parts of ``a; b`` have been split."""
    statement = facts.statement(node)
    if not isinstance(statement, cst.SimpleStatementLine):
        return
    why = "under torchrun each rank has its own GPU" if name == MASK else "torchrun sets it"
    first = first_below(facts)  # the init block, above it, takes torchrun's variables away
    is_below = first is not None and facts.order(node) >= facts.order(first)
    outside = f'{facts.our("os")}.environ.get("WORLD_SIZE", "1") == "1"'
    test = f"{facts.our('world_size')} == 1" if is_below else outside
    under = partial(cst_nodes.block_under, f"if {test}:", comment=f"nb2ddp: {why}")
    yield Edit(statement, _WHY[name], lambda line: under([cst.ensure_type(line, cst.SimpleStatementLine)]))
