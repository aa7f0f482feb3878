"""A loop that generates or scores over a data set is divided over the ranks.

Each rank takes every ``world_size``-th item; in the end the lists that the loop fills hold on every rank
what one process would have put there, in the order of the items. That is done where the loop goes through
a list or a dataset, where an iteration needs nothing of another one, and where only what it appends to
lists outlives it. Other generation before the end of training stays with rank 0 alone (``rank-zero``), and
after training there is rank 0 alone.

.. code-block:: diff

     from transformers import AutoModelForCausalLM, AutoTokenizer
     from trl import SFTTrainer
     model = AutoModelForCausalLM.from_pretrained("m")
     tokenizer = AutoTokenizer.from_pretrained("m")
     questions = ["What is DDP?", "Who is rank 0?"]
     answers = []
    -for question in questions:
    +for question in ddp.share_loop(questions, answers):  # nb2ddp: divided over the ranks
         tokens = model.generate(**tokenizer(question, return_tensors="pt"), do_sample=False)
         answers.append(tokenizer.decode(tokens[0]))
     trainer = SFTTrainer(model, train_dataset=to_dataset(questions, answers))
     trainer.train()
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from nb2ddp.analysis import rank_zero_work
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.parallel_loops import generates
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Edit, Finding, Note, Rule
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for found in rank_zero_work.divided(facts):
        shared = partial(_shared, function=helper(facts, "share_loop"), results=found.results)
        yield Edit(found.loop, "each rank takes its share; the results are gathered in order", shared)
        if facts.runs(found.loop, lambda call: _may_sample(facts, call)):
            yield Note(
                "the ranks divide this loop. Where the model samples, they draw other numbers than one "
                "process does, so the texts are others, as with another seed; do_sample=False gives the same",
                found.loop,
            )
        if facts.runs(found.loop, lambda call: facts.qualified(call.func) == "print"):
            yield Note("the ranks divide this loop; what it prints is rank 0's share", found.loop)


def _may_sample(facts: Facts, call: cst.Call) -> bool:
    if not generates(facts, call):
        return False
    given = facts.keyword(call, "do_sample")
    return given is None or cst_nodes.code_of(given) != "False"


def _shared(node: cst.CSTNode, function: str, results: tuple[str, ...]) -> cst.CSTNode:
    assert isinstance(node, cst.For)
    call = cst_nodes.wrapped(node.iter, function)
    arguments = [*call.args, *(cst.Arg(cst.Name(name)) for name in results)]
    node = node.with_changes(iter=call.with_changes(args=arguments))
    return cst_nodes.with_comment(node, "nb2ddp: divided over the ranks")


rule = Rule("divide", __doc__, find)
