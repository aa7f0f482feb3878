"""The rules, in the order in which their edits of one node are applied.

A new rule is a file here, a test file, and one line below.
"""

from __future__ import annotations

from nb2ddp.rewrite import Rule
from nb2ddp.rules import (
    batch,
    cell_output,
    device_literals,
    device_map,
    file_guards,
    finish,
    init_block,
    installs,
    loops,
    magics,
    main_first,
    precision,
    process_group,
    rank_zero,
    shell_lines,
    unsloth_train,
    wrap,
)

RULES: tuple[Rule, ...] = (
    init_block.rule,
    installs.rule,
    magics.rule,
    shell_lines.rule,
    cell_output.rule,
    device_map.rule,
    device_literals.rule,
    precision.rule,
    unsloth_train.rule,
    batch.rule,
    process_group.rule,
    loops.rule,
    wrap.rule,
    file_guards.rule,
    rank_zero.rule,
    main_first.rule,
    finish.rule,
)
