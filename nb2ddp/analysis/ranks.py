"""Find what a notebook asks of ranks, and what one process is told.

A notebook of one process rarely speaks of ranks; where it does, mostly so that rank 0 alone prints and saves. In the
script it is told of one process, and nothing can part the ranks. What torchrun puts into the environment (RANK,
WORLD_SIZE) is no question here: the script takes it out, and an Accelerator of the notebook's sees one process anyway.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts, asked_once
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import root_of

_DISTRIBUTED = "torch.distributed."
JOINS, LEAVES = f"{_DISTRIBUTED}init_process_group", f"{_DISTRIBUTED}destroy_process_group"
_GROUPLESS = ("barrier", "monitored_barrier", "init_process_group", "destroy_process_group")
# What functions tell one process.
_TOLD = dict.fromkeys(libraries.RANK_FUNCTIONS, "0")
_TOLD |= {"get_world_size": "1", "is_torchelastic_launched": "False"}
# The identifiers without which a notebook says nothing of ranks; "rank" alone is LoRA's, mostly.
_WORDS = libraries.RANK_FUNCTIONS | libraries.RANK_ZERO_TESTS | libraries.LAUNCH_VARIABLES
_WORDS |= {name.rpartition(".")[2] for name in libraries.PARALLEL_WRAPPERS}
_WORDS |= {"distributed", "should_save", "should_log", "DistributedSampler"}


@asked_once
def are_named(facts: Facts) -> bool:
    """Return whether a notebook speaks of ranks: of all others nothing here asks further."""
    names = (name.value for name in facts.nodes(cst.Name))
    return not _WORDS.isdisjoint(names) or not _WORDS.isdisjoint(map(cst_nodes.string_value, facts.strings))


@asked_once
def questions(facts: Facts) -> dict[cst.CSTNode, str]:
    """Return the expressions that ask for ranks, each with the code of what one process is told, in order."""
    found: dict[cst.CSTNode, str] = {}
    for node in facts.nodes(cst.Call, cst.Attribute):
        inside = isinstance(node, cst.Attribute) and facts.parent(node) in found
        if not inside and not facts.is_dead(node) and (told := _told(facts, node)):
            found[node] = told
    return found


def _told(facts: Facts, node: cst.Call | cst.Attribute) -> str:
    name = facts.qualified(node.func if isinstance(node, cst.Call) else node)
    last = name.rpartition(".")[2]
    if name.startswith(_DISTRIBUTED):
        asked = last if isinstance(node, cst.Call) else ""
        return str(_joins(facts)) if asked == "is_initialized" else _TOLD.get(asked, "")
    if isinstance(node, cst.Attribute):
        return "True" if _tests_rank_0(facts, node) else ""
    if isinstance(node.func, cst.Attribute) and _tests_rank_0(facts, node.func):
        return "True"
    root = root_of(node.func)
    if not isinstance(root, cst.Name) or facts.bindings(root.value):
        return ""  # of the notebook's own
    return "True" if last in libraries.RANK_ZERO_TESTS else _TOLD.get(last, "")


def _joins(facts: Facts) -> bool:
    return any(facts.qualified(call.func) == JOINS for call in facts.live_calls)


def _tests_rank_0(facts: Facts, node: cst.Attribute) -> bool:
    """Match ``state.is_world_process_zero``, ``args.should_save``, ``args.should_log`` of the libraries' objects."""
    name, owner = node.attr.value, node.value
    if name in ("should_save", "should_log"):
        return "arg" in cst_nodes.code_of(owner).rpartition(".")[2].lower()
    if name not in libraries.TESTS_OF_LIBRARIES or facts.fields(name) or facts.assigned(name):
        return False
    return "accelerator" not in (facts.kind(owner), facts.kind(root_of(owner)))


def collectives(facts: Facts) -> Iterator[cst.Call]:
    """Yield what a notebook that joins a group exchanges between ranks before training ends: ``dist.all_reduce(x)``.

    Without a group of the notebook's they stand below a test for one, which is told that there is none.
    """
    for call in facts.live_calls if _joins(facts) else ():
        name = facts.qualified(call.func)
        last = name.removeprefix(_DISTRIBUTED)
        exchanges = not last.startswith(("is_", "get_")) and last not in _GROUPLESS and not last[:1].isupper()
        if name != last and "." not in last and exchanges and not facts.is_after_training(call):
            yield call


def variables(facts: Facts) -> Iterator[cst.BaseExpression]:
    """Yield where torchrun's variables are read from the environment: ``os.environ["RANK"]``."""
    users = (user for user, _, reads in facts.environment(*libraries.LAUNCH_VARIABLES) if reads)
    yield from (user for user in users if not facts.is_after_training(user))
