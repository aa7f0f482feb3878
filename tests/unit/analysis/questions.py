"""Find the nodes of a small notebook that the tests ask about."""

from __future__ import annotations

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes

LOAD = "from unsloth import FastLanguageModel as F\nmodel, tokenizer = F.from_pretrained('m')\n"
MAKE = "from trl import SFTTrainer, SFTConfig\n"


def last_use(facts: Facts, name: str) -> cst.Name:
    """Return the last place that reads ``name``."""
    return [node for cell in facts.cells for node in facts.uses(name, cell.module)][-1]


def call_to(facts: Facts, code: str) -> cst.Call:
    """Return the one call whose code starts with ``code``."""
    (found,) = [call for call in facts.calls if cst_nodes.code_of(call).startswith(code)]
    return found
