"""The rules, in the order in which their edits of one node are applied.

A new rule is a file here, a folder of cases in tests/rules/cases, and its name below.
"""

from __future__ import annotations

from importlib import import_module

from nb2ddp.rewriting.findings import Rule

# cell_output is the last: it puts a call around what the others have changed.
_ORDER = """
frameworks init_block installs magics shell_lines surroundings seeds clocks run_names memory capability dialects
device_map device_literals precision batch process_group loops lightning wrap sharding file_guards rank_zero trackers
main_first finish cell_output
"""
# Those that are also for one process that spreads the model over the GPUs.
_BALANCED = frozenset(
    "frameworks init_block installs magics shell_lines surroundings capability dialects device_map precision finish "
    "cell_output".split()
)
# Those that ask nothing of a notebook without training.
_OF_TRAINING = frozenset(
    "frameworks seeds clocks run_names lightning sharding file_guards rank_zero trackers main_first".split()
)


def rule_of(name: str) -> Rule:
    """Return the rule of a file: its docstring, and its function ``find``."""
    file = import_module(f"{__name__}.{name}")
    is_balanced, is_of_training = name in _BALANCED, name in _OF_TRAINING
    return Rule(name.replace("_", "-"), file.__doc__ or "", file.find, is_balanced, is_of_training)


RULES = tuple(map(rule_of, _ORDER.split()))

# One process that spreads the model over the GPUs: the notebook's code, without what DDP needs.
BALANCED_RULES = tuple(rule for rule in RULES if rule.balanced)
