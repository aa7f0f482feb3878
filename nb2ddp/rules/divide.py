"""Divide a loop that generates or scores: each rank runs its share of the iterations.

Each rank takes every ``world_size``-th item. After the loop the lists that it fills are gathered, so that every
rank has what one process would have, in the order of the items. A loop is divided if it goes over a list or a
dataset, if its iterations are independent of one another, and if its only lasting effect is what it appends to
lists. Other generation before the end of training runs on rank 0 only (``rank-zero``), as does everything after
training.

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
                "the ranks divide this loop. If the model samples, the texts differ from those of one process, as "
                "with another seed; do_sample=False gives the same texts",
                found.loop,
            )
        if facts.runs(found.loop, lambda call: facts.qualified(call.func) == "print"):
            yield Note("the ranks divide this loop; only what rank 0 prints of it is shown", found.loop)


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
