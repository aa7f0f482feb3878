"""The live load puts a whole copy of the model on this rank's GPU; no other load changes."""

from __future__ import annotations

import pytest

from nb2ddp.rules.device_map import rule
from tests.support.helpers import apply, check_settles, check_untouched

UNSLOTH = "from unsloth import FastLanguageModel\n"
TRANSFORMERS = "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
TRAIN = "from trl import SFTTrainer\ntrainer = SFTTrainer(model)\ntrainer.train()\n"
OWN = '{"": local_rank if torch.cuda.is_available() else "cpu"}'
WHY = "  # nb2ddp: a whole copy on each rank's GPU"

LEFT_ALONE = {
    "a tokenizer": TRANSFORMERS + 'tok = AutoTokenizer.from_pretrained("m")',
    "a model that is moved later": TRANSFORMERS + 'm = AutoModelForCausalLM.from_pretrained("m")',
    "a configuration": 'from transformers import AutoConfig\nc = AutoConfig.from_pretrained("m")',
    "a class of the notebook": 'class Cache:\n    pass\nc = Cache.from_pretrained("m", device_map="auto")',
}

LOADS = {
    "names of one's own": (
        UNSLOTH + 'llm, tok = FastLanguageModel.from_pretrained("m")',
        UNSLOTH + 'llm, tok = FastLanguageModel.from_pretrained("m", device_map={"": local_rank})',
    ),
    "one argument per line, comments behind": (
        UNSLOTH + "model, tok = FastLanguageModel.from_pretrained(\n"
        '    model_name = "m", # the model\n    load_in_4bit = True # small\n)',
        UNSLOTH + "model, tok = FastLanguageModel.from_pretrained(\n"
        '    model_name = "m", # the model\n    load_in_4bit = True, # small\n'
        f'    device_map = {{"": local_rank}},{WHY}\n)',
    ),
    "the module under another name": (
        'import unsloth as us\nm, p = us.FastVisionModel.from_pretrained("m")',
        'import unsloth as us\nm, p = us.FastVisionModel.from_pretrained("m", device_map={"": local_rank})',
    ),
    "a star import": (
        'from unsloth import *\nm, t = FastModel.from_pretrained("m")',
        'from unsloth import *\nm, t = FastModel.from_pretrained("m", device_map={"": local_rank})',
    ),
    "only the model taken": (
        UNSLOTH + 'm = FastLanguageModel.from_pretrained("m")[0]',
        UNSLOTH + 'm = FastLanguageModel.from_pretrained("m", device_map={"": local_rank})[0]',
    ),
    "in a function": (
        UNSLOTH + 'def load():\n    return FastLanguageModel.from_pretrained("m")\nm, t = load()',
        UNSLOTH + 'def load():\n    return FastLanguageModel.from_pretrained("m", '
        'device_map={"": local_rank})\nm, t = load()',
    ),
    "in a method": (
        UNSLOTH + "class Run:\n  def __init__(self):\n    self.m, self.t = "
        'FastLanguageModel.from_pretrained("m")',
        UNSLOTH + "class Run:\n  def __init__(self):\n    self.m, self.t = "
        'FastLanguageModel.from_pretrained("m", device_map={"": local_rank})',
    ),
    "quantised by Transformers": (
        TRANSFORMERS + 'm = AutoModelForCausalLM.from_pretrained("m", quantization_config=bnb)',
        TRANSFORMERS
        + f'm = AutoModelForCausalLM.from_pretrained("m", quantization_config=bnb, device_map={OWN})',
    ),
    "on GPU 0": (
        TRANSFORMERS + 'm = AutoModelForCausalLM.from_pretrained("m", device_map={"": 0})',
        TRANSFORMERS + f'm = AutoModelForCausalLM.from_pretrained("m", device_map={OWN})',
    ),
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE.keys())
def test_what_places_no_model_is_left_alone(source: str) -> None:
    check_untouched(rule, source)


def test_a_dead_reload_keeps_its_device_map() -> None:
    check_untouched(
        rule,
        UNSLOTH + 'if False:\n    model, tok = FastLanguageModel.from_pretrained("lora", device_map="auto")',
    )


def test_a_reload_after_training_keeps_its_device_map() -> None:
    check_untouched(
        rule, UNSLOTH + TRAIN + 'model, tok = FastLanguageModel.from_pretrained("lora", device_map="auto")'
    )


@pytest.mark.parametrize(("before", "after"), LOADS.values(), ids=LOADS.keys())
def test_each_rank_loads_a_whole_copy(before: str, after: str) -> None:
    assert not check_settles(rule, before, after).notes


@pytest.mark.parametrize("spread", ["auto", "balanced", "sequential"])
def test_a_model_that_was_spread_over_the_gpus_is_noted(spread: str) -> None:
    code = UNSLOTH + 'm, t = FastLanguageModel.from_pretrained(device_map = VALUE, model_name = "m")'
    result = apply(rule, code.replace("VALUE", f'"{spread}"'))
    assert result.code[1] == code.replace("VALUE", '{"": local_rank}')
    [note] = result.notes
    assert f'device_map="{spread}"' in note.why


def test_a_base_model_and_its_adapter_are_on_the_same_gpu() -> None:
    result = apply(
        rule,
        TRANSFORMERS + 'from peft import PeftModel\nb = AutoModelForCausalLM.from_pretrained("m", '
        'device_map="auto")\nm = PeftModel.from_pretrained(b, "a", device_map="auto")',
    )
    assert result.code[1].count(f"device_map={OWN}") == 2
    assert "auto" not in result.code[1]


def test_names_of_the_notebook_are_not_taken() -> None:
    result = apply(rule, UNSLOTH + 'local_rank = 1\nm, t = FastLanguageModel.from_pretrained("m")')
    assert 'device_map={"": ddp_local_rank}' in result.code[1]
