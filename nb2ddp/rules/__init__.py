"""The rules, in the order in which their edits of one node are applied.

A new rule is a file here, a folder of cases in tests/rules/cases, and one line below.
"""

from __future__ import annotations

from nb2ddp.rewriting.findings import Rule
from nb2ddp.rules import (
    batch,
    capability,
    cell_output,
    clocks,
    device_literals,
    device_map,
    dialects,
    file_guards,
    finish,
    frameworks,
    init_block,
    installs,
    loops,
    magics,
    main_first,
    memory,
    precision,
    process_group,
    rank_zero,
    run_names,
    seeds,
    sharding,
    shell_lines,
    surroundings,
    trackers,
    wrap,
)

RULES: tuple[Rule, ...] = (
    frameworks.rule,
    init_block.rule,
    installs.rule,
    magics.rule,
    shell_lines.rule,
    surroundings.rule,
    seeds.rule,
    clocks.rule,
    run_names.rule,
    memory.rule,
    capability.rule,
    dialects.rule,
    device_map.rule,
    device_literals.rule,
    precision.rule,
    batch.rule,
    process_group.rule,
    loops.rule,
    wrap.rule,
    sharding.rule,
    file_guards.rule,
    rank_zero.rule,
    trackers.rule,
    main_first.rule,
    finish.rule,
    cell_output.rule,  # puts a call around what the others have changed
)

# One process that spreads the model over the GPUs: the notebook's code, without what DDP needs.
BALANCED_RULES: tuple[Rule, ...] = tuple(rule for rule in RULES if rule.balanced)
