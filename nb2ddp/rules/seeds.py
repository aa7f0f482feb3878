"""Seed random splits and shuffles, so that they are the same on every rank.

Each process starts with a random state of its own. Without a seed the ranks would split the data differently,
and train on one another's test rows.

.. code-block:: diff

     from datasets import load_dataset
     from trl import SFTTrainer
     dataset = load_dataset("d", split="train")
    -parts = dataset.shuffle().train_test_split(test_size=0.1)
    +parts = dataset.shuffle(seed=3407).train_test_split(test_size=0.1, seed=3407)
     trainer = SFTTrainer(model, train_dataset=parts["train"])
     trainer.train()
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis import rank_zero_work
from nb2ddp.analysis.drawn_names import makes_system_generator
from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Decline, Edit, Finding, Need, Note, Rule
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes

SEED = "3407"
_DATASET_METHODS = frozenset({"shuffle", "train_test_split"})
_SEEDING_ALL = frozenset(
    "transformers.set_seed transformers.enable_full_determinism accelerate.utils.set_seed "
    "lightning.seed_everything".split()
)
_SEEDING = _SEEDING_ALL | {"random.seed", "numpy.random.seed", "torch.manual_seed"}
# Library functions that draw, and the argument that seeds them.
_DRAWING_FUNCTIONS = {
    "sklearn.utils.shuffle": "random_state",
    "sklearn.utils.resample": "random_state",
    "datasets.interleave_datasets": "seed",
}
_TORCH_DRAWS = frozenset({"torch.randperm", "torch.utils.data.random_split"})
_GLOBAL_TORCH_DRAWS = frozenset(
    f"torch.{name}"
    for name in "rand randn randint randperm normal bernoulli multinomial rand_like randn_like randint_like".split()
)
_TORCH_SEED = f"torch.Generator().manual_seed({SEED})"
_SPLITTERS = frozenset(
    "ShuffleSplit StratifiedShuffleSplit GroupShuffleSplit RepeatedKFold RepeatedStratifiedKFold".split()
)
_SPLITTERS_IF_SHUFFLED = frozenset("KFold StratifiedKFold StratifiedGroupKFold".split())
_SEARCHES = frozenset(
    "optuna.create_study optuna.study.create_study ray.tune.run ray.tune.Tuner hyperopt.fmin "
    "wandb.agent".split()
)


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    if facts.last_collective is None:
        return
    calls = [call for call in facts.live_calls if not facts.is_after_training(call)]
    # these draw from NumPy's global generator: a seed of the notebook is kept; a stream does not use it
    streams = any(facts.streams(call) for call in calls)
    numpys = _seeded_from(facts, calls, "numpy.random.seed")
    torches = _seeded_from(facts, calls, "torch.manual_seed")
    for call in calls:
        keyword = _seed_keyword(facts, call)
        seeded = any(order < facts.order(call) for order in numpys) and not (keyword == "seed" and streams)
        if keyword is not None and not seeded:
            yield Edit(call, "every rank must draw the same", partial(_seeded, keyword=keyword))
        name = facts.qualified(call.func)
        once = facts.runs_once(call)  # otherwise each call would draw the same again
        if name in libraries.GENERATORS and not call.args and once:
            yield Edit(call, "every rank must draw the same", _with_seed)
        unseeded = not any(order < facts.order(call) for order in torches)
        if (
            name in _TORCH_DRAWS
            and once
            and unseeded
            and not facts.keyword(call, "generator")
            and not _stars(call)
        ):
            drawn = partial(_seeded, keyword="generator", value=_TORCH_SEED)
            yield Edit(call, "every rank must draw the same", drawn)
        if name in _SEARCHES and not _draws_alike(facts, call):
            yield Decline(
                "this search would draw other values on every rank; train with the best values, or search "
                "with trainer.hyperparameter_search(), which draws them on rank 0",
                call,
            )
    yield from _orders_of_sets(facts, calls)
    yield from _shuffled_by_system(facts, calls)
    drawing = [
        call
        for package in ("random", "numpy")
        for call in [c for c in calls if _draws(facts, c) and facts.qualified(c.func).startswith(package)][:1]
        if not any(
            order < facts.order(call)
            for order in (numpys if package == "numpy" else _seeded_from(facts, calls, "random.seed"))
        )
    ]
    if drawing:
        yield Need("seed", SEED)
        yield Note(
            "this draws random numbers without a seed; the script sets one, because all ranks must draw the same",
            drawing[0],
        )


def _draws_alike(facts: Facts, search: cst.Call) -> bool:
    """Return whether a search has a sampler with a seed, and no store that all ranks would write to, nor a clock."""
    sampler = facts.keyword(search, "sampler")
    made = facts.bound(sampler)
    seed = facts.keyword(made, "seed") if isinstance(made, cst.Call) else None
    optimizes = [call for call in facts.live_calls if facts.method(call) == "optimize"]
    own_way = any(
        facts.keyword(call, name) is not None for call in optimizes for name in ("timeout", "n_jobs")
    )
    return (
        seed is not None
        and cst_nodes.code_of(seed) != "None"
        and facts.keyword(search, "storage") is None
        and not own_way
    )


def _seed_keyword(facts: Facts, call: cst.Call) -> str | None:
    """Return the argument that seeds a call; None if the call draws nothing or is seeded."""
    method, name = facts.method(call), facts.qualified(call.func)
    if _stars(call):
        return None
    if name in _DRAWING_FUNCTIONS:
        given = _DRAWING_FUNCTIONS[name]
        draws = given != "seed" or facts.keyword(call, "probabilities") is not None
        return given if draws and facts.keyword(call, given) is None else None
    if (
        _splits(facts, call, name)
        or (method == "sample" and _samples_frame(facts, call))
        or (method == "sample" and len(call.args) == 1 and facts.comes_from(call.func, "pandas"))
        or (method == "sample" and _samples_group(facts, call))
    ):
        return None if facts.keyword(call, "random_state") else "random_state"
    if method not in _DATASET_METHODS or facts.kind(call) != "dataset":
        return None
    if any(facts.keyword(call, given) for given in ("seed", "generator", "seeds", "generators")):
        return None
    if method == "shuffle" and any(argument.keyword is None for argument in call.args):
        return None
    without = facts.keyword(call, "shuffle")
    return None if without is not None and cst_nodes.code_of(without) == "False" else "seed"


def _stars(call: cst.Call) -> bool:
    return any(argument.star == "**" for argument in call.args)


def _seeded_from(facts: Facts, calls: list[cst.Call], own: str) -> list[int]:
    """Return the orders at which the notebook seeds the generator that ``own`` names."""
    return [facts.order(c) for c in calls if facts.qualified(c.func) in _SEEDING_ALL | {own}]


def _samples_frame(facts: Facts, call: cst.Call) -> bool:
    """Match ``frame.sample(n=10)``, unless a class of the notebook has a method of that name."""
    if facts.keyword(call, "frac") is None and facts.keyword(call, "n") is None:
        return False
    return facts.comes_from(call.func, "pandas") or not facts.bindings("sample")


def _samples_group(facts: Facts, call: cst.Call) -> bool:
    """Match ``group.sample(10)`` of a group that pandas made, unless a class of the notebook has such a method."""
    return (
        len(call.args) == 1
        and isinstance(call.args[0].value, cst.Integer)
        and bool(facts.imports_of("pandas"))
        and not facts.imports_of("polars")
        and not any(isinstance(binding.node, cst.FunctionDef) for binding in facts.bindings("sample"))
    )


def _orders_of_sets(facts: Facts, calls: list[cst.Call]) -> Iterator[Finding]:
    """Yield edits that give every rank rank 0's iteration order of a set: string hashes differ between processes.

    Each rank keeps its own objects: an optimizer is to get a rank's own parameters, not copies of rank 0's.
    """
    shared = helper(facts, "same_order")
    by_one = rank_zero_work.generated(facts)

    def keeps_rank(call: cst.Call) -> bool:
        return rank_zero_work.is_for_some(facts, call) or facts.fills_cache(call)

    for call in calls:
        name = facts.qualified(call.func)
        if name not in ("list", "tuple", "enumerate") or not call.args or not facts.runs_once(call):
            continue
        statement = facts.top_statement(call)
        if statement in by_one or facts.runs(statement, keeps_rank):
            continue  # one rank alone comes here, or one rank after another: they cannot wait for one another
        made = call.args[0].value
        if not _is_set(facts, made):
            continue
        yield Edit.inside(made, "a set has another order on each rank", shared)


def _shuffled_by_system(facts: Facts, calls: list[cst.Call]) -> Iterator[Note]:
    """Note the first ``random.SystemRandom().shuffle(rows)``, which each rank does in its own way."""
    for call in calls:
        owner = call.func.value if isinstance(call.func, cst.Attribute) else None
        shuffles = facts.method(call) == "shuffle" and makes_system_generator(facts, owner)
        if shuffles:
            yield Note(
                "no seed reaches a SystemRandom, so that each rank shuffles in another order; "
                f"shuffle with random.Random({SEED})",
                call,
            )
            return


def _is_set(facts: Facts, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a set, or a name for one."""
    made = facts.bound(node)
    of_set = isinstance(made, cst.Call) and facts.qualified(made.func) in ("set", "frozenset")
    return of_set or isinstance(made, cst.SetComp | cst.Set)


def _with_seed(node: cst.CSTNode) -> cst.CSTNode:
    return cst.ensure_type(node, cst.Call).with_changes(args=[cst.Arg(cst.Integer(SEED))])


def _splits(facts: Facts, call: cst.Call, name: str) -> bool:
    """Return whether a function or class of scikit-learn splits or samples rows at random."""
    package, _, last = name.rpartition(".")
    if package != "sklearn.model_selection":
        return False
    shuffles = facts.keyword(call, "shuffle")
    if last in _SPLITTERS_IF_SHUFFLED:
        return shuffles is not None and cst_nodes.code_of(shuffles) != "False"
    return last == "train_test_split" or last in _SPLITTERS


def _seeded(node: cst.CSTNode, keyword: str, value: str = SEED) -> cst.CSTNode:
    assert isinstance(node, cst.Call)
    return cst_nodes.with_keyword(node, keyword, value, "nb2ddp: the same on every rank")


def _draws(facts: Facts, call: cst.Call) -> bool:
    name = facts.qualified(call.func)
    if name in _SEEDING | libraries.GENERATORS:
        return False
    if name.endswith(("seed", ".SystemRandom")):
        return False  # no seed reaches a SystemRandom
    return name.startswith(libraries.RANDOM_MODULES)


rule = Rule("seeds", __doc__, find)
