"""Mend versions of libraries that do not go together."""

import functools
from typing import Any


def drop_weight_tying() -> None:
    """Let LoraConfig take the ensure_weight_tying=False that Unsloth gives it; PEFT knows it from 0.18 on.

    Each rank changes its own process, and waits for no other.
    """
    from peft import LoraConfig

    make = LoraConfig.__init__

    @functools.wraps(make)  # Unsloth looks at its parameters
    def make_without(self: Any, *args: Any, ensure_weight_tying: bool = False, **options: Any) -> None:
        make(self, *args, **options)

    LoraConfig.__init__ = make_without


def move_attention_bias() -> None:
    """Move xformers' attention bias to the GPU of the layer that uses it; Unsloth does so from 2026.8.20 on.

    Each rank changes its own process, and waits for no other.
    """
    from xformers.ops.fmha.common import Inputs

    validate = Inputs.validate_inputs

    def move_and_validate(inputs: Any) -> None:
        for name in ("q_seqinfo", "k_seqinfo"):
            lengths = getattr(inputs.attn_bias, name, None)
            if lengths is not None:
                lengths.seqstart = lengths.seqstart.to(inputs.query.device)
        validate(inputs)

    Inputs.validate_inputs = move_and_validate
