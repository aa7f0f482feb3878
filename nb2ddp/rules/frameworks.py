"""Leave the training of other frameworks alone: decline what fastai, Keras, DeepSpeed and the like train.

They divide their training over GPUs by means of their own, or not at all; a loop beside them, or a stray
``backward()``, does not make the notebook one that nb2ddp can convert. A command that trains in a process of its own
runs once, as in the notebook, which is noted.

.. code-block:: diff

     import keras
     model = keras.Sequential([keras.layers.Dense(2)])
     model.fit(rows, labels)
"""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp import libraries
from nb2ddp.analysis import frameworks, modules, training_loops
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.rank_zero_work import why_alone
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Decline, Finding, Note


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for training in frameworks.trainings(facts):
        if not training.is_beside:
            yield Decline(training.why, training.call)
            return
    found = [o for c in training_loops.optimizers(facts) for o in training_loops.named_models(facts, c)]
    divided = {name for of in found for name in facts.loads_in(of.model)}  # by whatever calls these models
    for training in {t.package: t for t in reversed([*frameworks.unknown_trainings(facts)])}.values():  # once
        of_other = training.package and training.package not in libraries.COMPUTING_PACKAGES
        if of_other and divided.isdisjoint(facts.loads_in(training.call)):
            late, call = facts.is_after_training(training.call), training.call
            alone = late or (why_alone(facts, call) and not modules.runs(facts, call, modules.trains))
            who = "rank 0 trains it alone" if alone else "each rank trains it whole"
            yield Note(f"{who}, no faster than the notebook: {training.why}", call)
    for training in (t for t in frameworks.commands(facts) if "`%run" not in t.why):  # no process
        yield Note(f"{training.why}. Beside this script it runs once, as in the notebook", training.call)
