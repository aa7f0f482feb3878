"""Note what a T4 cannot compute, before it costs GPU time: FP8 and FlashAttention, where a keyword asks for them.

A T4 has compute capability 7.5. FP8 needs 8.9, FlashAttention 8.0. No code is changed, because the notebook may be
meant for another GPU. With ``--gpu-memory`` above 16 the GPU is not a T4, and nothing is noted.

.. code-block:: diff

     from unsloth import FastLanguageModel
     model, tokenizer = FastLanguageModel.from_pretrained("m", load_in_fp8=True)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Finding, Note
from nb2ddp.source import cst_nodes

T4_MEMORY = 16.0  # GiB; PyTorch sees 15 of them
_FP8 = "a T4 computes no FP8 (that takes compute capability 8.9: an L4, an H100); "
_FLASH = 'a T4 runs no FlashAttention (an A100 or an L4 does); use attn_implementation="sdpa"'
# By a keyword of any call: how its code looks where a T4 cannot do it, and what to say.
_KEYWORDS = {
    "load_in_fp8": (r"(?!False|None)", f"{_FP8}load_in_4bit=True loads the model there"),
    "mixed_precision": (r".fp8.$", f'{_FP8}mixed_precision="fp16" trains there'),
    "attn_implementation": (r"[\"'].*flash", _FLASH),
    "use_flash_attention_2": (r"True$", _FLASH),
}


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for call in facts.live_calls if options.gpu_memory <= T4_MEMORY else ():
        for argument in call.args:
            code, why = _KEYWORDS.get(argument.keyword.value if argument.keyword else "", ("", ""))
            if why and re.match(code, cst_nodes.code_of(argument.value)) and not facts.is_switched_off(call):
                yield Note(why, call)
