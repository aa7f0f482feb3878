"""Work around library versions that do not go together, only where the notebook's pins need it.

Unsloth 2025.12.10 to 2026.8.19 passes ``ensure_weight_tying`` to every ``LoraConfig``, which PEFT accepts only
from 0.18 on; pip installs such an Unsloth beside an older PEFT if the notebook pins it. With one model spread
over the GPUs, xformers refuses an attention bias that is on another GPU than the layer; Unsloth moves it from
2026.8.20 on. Under DDP each rank has one GPU, and nothing has to be moved.

.. code-block:: diff

     get_ipython().system('pip install unsloth peft==0.17.1')
     from unsloth import FastLanguageModel
     model, tokenizer = FastLanguageModel.from_pretrained("m")
    +ddp.drop_weight_tying()  # nb2ddp: Unsloth passes an argument that this PEFT does not have
     model = FastLanguageModel.get_peft_model(model, r=16)
"""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.installs import keeps_below, keeps_from, pins
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Finding, Insert, Rule
from nb2ddp.rewriting.runtime_calls import helper

PEFT_TIES = "0.18.0"  # LoraConfig has ensure_weight_tying: huggingface/peft, pull request 2803
UNSLOTH_TIES, UNSLOTH_ASKS = "2025.12.10", "2026.8.20"  # gives it to any PEFT; looks whether PEFT knows it
UNSLOTH_PACKS, UNSLOTH_MOVES = "2025.12.4", "2026.8.20"  # block masks; pull request 8516 moves them


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    if not facts.uses_unsloth:
        return
    unsloth = pins(facts, "unsloth")
    adapting = [c for c in facts.live_calls if facts.method(c) == "get_peft_model"]
    tying = [c for c in facts.live_calls if facts.keyword(c, "ensure_weight_tying") is not None]
    if (
        adapting
        and not tying
        and keeps_below(pins(facts, "peft"), PEFT_TIES)
        and not keeps_below(unsloth, UNSLOTH_TIES)
        and not keeps_from(unsloth, UNSLOTH_ASKS)
    ):
        code = f"{helper(facts, 'drop_weight_tying')}()"
        comment = "nb2ddp: Unsloth passes an argument that this PEFT does not have"
        why = "PEFT has ensure_weight_tying from 0.18 on"
        yield Insert(facts.statement(adapting[0]), "before", f"{code}  # {comment}", why)
    stays = keeps_below(unsloth, UNSLOTH_MOVES) and not keeps_below(unsloth, UNSLOTH_PACKS)
    if options.strategy != "balanced" or not stays:
        return
    loading = [
        c for c in facts.live_calls if facts.method(c) == "from_pretrained" and facts.kind(c) == "model"
    ]
    if loading:
        code = f"{helper(facts, 'move_attention_bias')}()"
        comment = "nb2ddp: this Unsloth leaves it on the first GPU"
        why = "xformers wants the attention bias on the layer's GPU"
        yield Insert(facts.statement(loading[0]), "before", f"{code}  # {comment}", why)


rule = Rule("compatibility", __doc__, find, balanced=True)
