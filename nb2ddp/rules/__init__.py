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
RULES: tuple[Rule, ...] = tuple(import_module(f"{__name__}.{name}").rule for name in _ORDER.split())

# One process that spreads the model over the GPUs: the notebook's code, without what DDP needs.
BALANCED_RULES: tuple[Rule, ...] = tuple(rule for rule in RULES if rule.balanced)
