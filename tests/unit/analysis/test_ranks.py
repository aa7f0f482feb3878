"""What a notebook asks of ranks, and what one process is told."""

from __future__ import annotations

import pytest

from nb2ddp.analysis.ranks import are_named, collectives, questions, variables
from nb2ddp.source.cst_nodes import code_of
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import call_to

START = """\
import os, torch
import torch.distributed as dist
from accelerate import Accelerator, PartialState
from transformers import Trainer
from lib import is_main_process
trainer, accelerator = Trainer(model, args), Accelerator()
"""


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("dist.get_rank()", "0"),
        ("torch.distributed.get_node_local_rank()", "0"),
        ("dist.get_world_size()", "1"),
        ("dist.is_initialized()", "False"),
        ("trainer.is_world_process_zero()", "True"),
        ("trainer.args.should_save", "True"),
        ("self.args.should_log", "True"),
        ("PartialState().is_main_process", "True"),
        ("is_main_process()", "True"),
        ("get_rank()", "0"),
        ("accelerator.is_main_process", None),
        ("control.should_save", None),
        ("control.should_log", None),
        ("dist.is_available()", None),
        ("config.rank", None),
    ],
)
def test_what_one_process_is_told(code: str, told: str | None) -> None:
    found = questions(facts_of(START, f"x = {code}"))
    assert {code_of(node): text for node, text in found.items()} == ({code: told} if told else {})


def test_what_the_notebook_defines_is_its_own() -> None:
    own = "class Run:\n    is_main_process = True\ndef get_rank():\n    return 3\nx = Run().is_main_process, get_rank()"
    assert not questions(facts_of(own))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("rank = dist.get_rank()\nuse(rank == 0)", True),
        ("def first():\n    return not dist.get_rank()\nuse(first() and verbose)", True),
        ("class Run:\n    def __init__(self):\n        self.main = is_main_process()\nuse(Run().main)", True),
        ("rank, size = dist.get_rank(), 8\nuse(size > 4)", False),
        ("rank = 16\nuse(rank == 16)", False),
    ],
)
def test_what_is_made_of_it(code: str, expected: bool) -> None:
    facts = facts_of(START, code)
    assert facts.is_made_of(call_to(facts, "use(").args[0].value, frozenset(questions(facts))) == expected


def test_what_a_group_exchanges_counts_where_the_notebook_joins_one() -> None:
    code = "dist.all_reduce(x)\ndist.barrier()\ny = dist.get_backend()\nop = dist.ReduceOp(1)"
    joined = facts_of(START, "dist.init_process_group('gloo')", code)
    assert [code_of(call) for call in collectives(joined)] == ["dist.all_reduce(x)"]
    assert not list(collectives(facts_of(START, code)))


def test_torchruns_variables_where_they_are_read() -> None:
    code = "os.environ['RANK'] = '0'\na = os.environ['RANK']\nb = os.getenv('WORLD_SIZE', '1')\nprint('RANK')"
    found = [code_of(node) for node in variables(facts_of(START, code))]
    assert found == ["os.environ['RANK']", "os.getenv('WORLD_SIZE', '1')"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import torch.distributed as dist", True),
        ("from torch.nn import DataParallel", True),
        ("lib.get_rank()", True),
        ("trainer.is_world_process_zero()", True),
        ("trainer.args.should_save", True),
        ("self.args.should_log", True),
        ("seed = os.environ['RANK']", True),
        (
            "model = get_peft_model(model, rank=16)\nconfig.lora_rank = 8\nprint('rank 0', distributed_data)",
            False,
        ),
    ],
)
def test_a_notebook_speaks_of_ranks_by_its_identifiers(code: str, expected: bool) -> None:
    assert are_named(facts_of(code)) == expected
