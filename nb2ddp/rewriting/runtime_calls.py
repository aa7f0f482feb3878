"""Name the functions of the runtime module `ddp_support` in generated code."""

from __future__ import annotations

from typing import Literal

from nb2ddp.analysis.facts import Facts

Helper = Literal[
    "as_one_process",
    "check_replicas",
    "drop_weight_tying",
    "environment_without_ranks",
    "finish",
    "from_all_ranks",
    "from_main_process",
    "has_bf16",
    "in_turn",
    "init",
    "init_process_group",
    "is_main_process",
    "main_process_first",
    "main_process_only",
    "move_attention_bias",
    "parallelize",
    "prepare_trainer",
    "save_plots",
    "share_batch",
    "share_loop",
    "shell",
    "shell_output",
    "show",
    "sum_over_ranks",
    "takes_turn",
    "wrap",
    "wrap_trainer",
    "write_file",
]
"""What generated code uses; tests/unit/test_runtime_contract.py compares it with the module."""


def module_name(facts: Facts) -> str:
    """Return the name that the script imports the runtime module as: ``ddp``, unless the notebook binds it."""
    return facts.our("ddp")


def helper(facts: Facts, name: Helper) -> str:
    """Return the dotted name of a runtime function in this script: ``ddp.share_batch``."""
    return f"{module_name(facts)}.{name}"
