"""Random splits and shuffles come out the same on every rank.

Each process starts with random numbers of its own. Without a seed the ranks would split the data
differently, and train on each other's test rows.

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

from nb2ddp import cstkit, knowledge
from nb2ddp.facts import Facts
from nb2ddp.rewrite import Decline, Edit, Finding, Need, Note, Options, Rule

SEED = "3407"
_DATASET_METHODS = frozenset({"shuffle", "train_test_split"})
_SEEDING = frozenset(
    "random.seed numpy.random.seed transformers.set_seed transformers.enable_full_determinism "
    "accelerate.utils.set_seed lightning.seed_everything".split()
)
_SPLITTERS = frozenset(
    "ShuffleSplit StratifiedShuffleSplit GroupShuffleSplit RepeatedKFold RepeatedStratifiedKFold".split()
)
_SPLITTERS_IF_SHUFFLED = frozenset("KFold StratifiedKFold StratifiedGroupKFold".split())
_SEARCHES = frozenset(
    "optuna.create_study optuna.study.create_study ray.tune.run ray.tune.Tuner hyperopt.fmin "
    "wandb.agent".split()
)
# What needs no seed, or makes a generator that has its own.
_HARMLESS = frozenset({"numpy.random.default_rng", "numpy.random.RandomState", "random.Random"})


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    if facts.last_collective is None:
        return
    calls = [call for call in facts.live_calls if not facts.is_after_training(call)]
    # these draw from numpy's generator: where the notebook seeds that, they keep its numbers; not so a stream
    streams = any(_streams(facts, call) for call in calls)
    numpys = [facts.order(c) for c in calls if facts.qualified(c.func) in _SEEDING - {"random.seed"}]
    for call in calls:
        keyword = _seed_keyword(facts, call)
        seeded = any(order < facts.order(call) for order in numpys) and not (keyword == "seed" and streams)
        if keyword is not None and not seeded:
            yield Edit(call, "every rank must draw the same", partial(_seeded, keyword=keyword))
        if facts.qualified(call.func) in _SEARCHES:
            yield Decline(
                "this search would draw other values on every rank; train with the best values, or search "
                "with trainer.hyperparameter_search(), which draws them on rank 0",
                call,
            )
    drawing = [c for c in calls if _draws(facts, c)]
    seeding = [c for c in calls if facts.qualified(c.func) in _SEEDING]
    if drawing and not any(facts.order(seed) < facts.order(drawing[0]) for seed in seeding):
        yield Need("seed", SEED)
        packages = {facts.qualified(call.func).partition(".")[0] for call in drawing}
        if "numpy" in packages:
            yield Need("seed_numpy", SEED)
        yield Note(
            "this draws random numbers without a seed; the script sets one: all ranks must draw the same",
            drawing[0],
        )


def _seed_keyword(facts: Facts, call: cst.Call) -> str | None:
    """The argument that fixes what a call draws; None where it draws nothing or has one."""
    method, name = facts.method(call), facts.qualified(call.func)
    if any(argument.star == "**" for argument in call.args):
        return None
    if (
        _splits(facts, call, name)
        or (method == "sample" and (facts.keyword(call, "frac") or facts.keyword(call, "n")))
        or (method == "sample" and len(call.args) == 1 and facts.comes_from(call.func, "pandas"))
    ):
        return None if facts.keyword(call, "random_state") else "random_state"
    if method not in _DATASET_METHODS or facts.kind(call) != "dataset":
        return None
    if any(facts.keyword(call, given) for given in ("seed", "generator", "seeds", "generators")):
        return None
    if method == "shuffle" and any(argument.keyword is None for argument in call.args):
        return None
    without = facts.keyword(call, "shuffle")
    return None if without is not None and cstkit.code_of(without) == "False" else "seed"


def _streams(facts: Facts, call: cst.Call) -> bool:
    """Whether a call makes a data set that is read as it comes."""
    streaming = facts.keyword(call, "streaming")
    if streaming is not None and cstkit.code_of(streaming) != "False":
        return True
    return "IterableDataset" in facts.qualified(call.func) or facts.method(call) == "to_iterable_dataset"


def _splits(facts: Facts, call: cst.Call, name: str) -> bool:
    """Whether a function or class of scikit-learn draws which rows come together."""
    package, _, last = name.rpartition(".")
    if package != "sklearn.model_selection":
        return False
    shuffles = facts.keyword(call, "shuffle")
    if last in _SPLITTERS_IF_SHUFFLED:
        return shuffles is not None and cstkit.code_of(shuffles) != "False"
    return last == "train_test_split" or last in _SPLITTERS


def _seeded(node: cst.CSTNode, keyword: str) -> cst.CSTNode:
    assert isinstance(node, cst.Call)
    return cstkit.with_keyword(node, keyword, SEED, "nb2ddp: the same on every rank")


def _draws(facts: Facts, call: cst.Call) -> bool:
    name = facts.qualified(call.func)
    if name in _SEEDING or name in _HARMLESS:
        return False
    return name.startswith(knowledge.RANDOM_MODULES) and not name.endswith("seed")


rule = Rule("seeds", __doc__, find)
