"""What a value is: trainer, model, dataset, loader, arguments."""

from __future__ import annotations

import pytest

from nb2ddp.analysis.facts import Facts
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import LOAD, MAKE, call_to, last_use


def kind(facts: Facts, name: str = "it") -> str:
    return facts.kind(last_use(facts, name))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"{LOAD}it = model", "model"),
        (f"{LOAD}it = tokenizer", ""),
        (f"{LOAD}it = F.get_peft_model(model, r=8)", "model"),
        (f"{LOAD}it = model.to('cuda')", "model"),
        ("import unsloth as us\nit, t = us.FastModel.from_pretrained('m')", "model"),
        ("from unsloth import *\nit, t = FastLanguageModel.from_pretrained('m')", "model"),
        ("from transformers import AutoTokenizer\nit = AutoTokenizer.from_pretrained('m')", ""),
        ("import torch\nclass Net(torch.nn.Module): pass\nit = Net()", "model"),
        (f"{MAKE}it = SFTTrainer(model=m)", "trainer"),
        (f"{MAKE}it = SFTTrainer(model=m).model", "model"),
        (f"{MAKE}it = SFTTrainer(model=m).args", "arguments"),
        (f"{MAKE}it = SFTConfig(seed=1)", "arguments"),
        (f"{MAKE}a = SFTConfig(seed=1)\nb = a\nit = b", "arguments"),
        (f"{MAKE}it = SFTConfig(a=1) if x else SFTConfig(a=2)", "arguments"),
        (f"{MAKE}it = None if x else SFTTrainer(model=m)", "trainer"),
        (f"{MAKE}def make():\n    return SFTTrainer(model=m)\nit = make()", "trainer"),
        (
            f"{MAKE}class Job:\n    def make(self):\n        return SFTTrainer(model=m)\nit = Job().make()",
            "trainer",
        ),
        (f"{MAKE}class Job:\n    def make(self):\n        return 1\nit = Job().make()", ""),
        (f"{MAKE}class Mine(SFTTrainer): pass\nclass More(Mine): pass\nit = More()", "trainer"),
        (f"{MAKE}class SFTTrainer(SFTTrainer): pass\nit = SFTTrainer()", "trainer"),
        (
            f"{MAKE}from unsloth.chat_templates import train_on_responses_only as only\nt = SFTTrainer(m)\n"
            "it = only(t, instruction_part='a')",
            "trainer",
        ),
        ("from transformers import LlamaConfig\nit = LlamaConfig()", ""),
        ("from trl import ModelConfig\nit = ModelConfig()", ""),
        ("from mine import SFTTrainer\nit = SFTTrainer()", ""),
        ("from datasets import load_dataset\nit = load_dataset('a', split='b')", "dataset"),
        ("from datasets import load_dataset\nit = load_dataset('a')['train'].map(f).shuffle()", "dataset"),
        ("import datasets\nit = datasets.Dataset.from_dict(x)", "dataset"),
        ("from torch.utils.data import DataLoader\nit = DataLoader(x)", "loader"),
        ("from transformers import AutoModelForCausalLM as A\nit = A.from_config(c)", "model"),
        ("from transformers import AutoConfig\nit = AutoConfig.from_pretrained('m')", ""),
        ("from transformers import LlamaForCausalLM\nit = LlamaForCausalLM(c)", "model"),
        ("import transformers\nit = transformers.BertModel(c)", "model"),
        ("from transformers import DataCollatorForLanguageModeling as D\nit = D(t)", ""),
        (f"import torch\n{LOAD}it = torch.compile(model)", "model"),
        ("import torch\nit = torch.compile(f)", ""),
        ("it = 'text'", ""),
        ("it = it2 = it", ""),
        ("def f():\n    return f()\nit = f()", ""),
        ("x = y\ny = x\nit = y", ""),
    ],
)
def test_what_a_variable_holds(code: str, expected: str) -> None:
    assert kind(facts_of(*code.split("\n\n"), "use(it)")) == expected


@pytest.mark.parametrize(
    ("others", "own", "expected"),
    [("t", "None\n        self.t = SFTTrainer(m)", "trainer"), ("SFTTrainer(m)", "1", "")],
)
def test_an_attribute_holds_what_its_own_class_gives_it(others: str, own: str, expected: str) -> None:
    other = f"class Other:\n    def __init__(self, t):\n        self.t = {others}\n"
    job = f"class Job:\n    def __init__(self):\n        self.t = {own}\n    def run(self):\n        use(self.t)\n"
    facts = facts_of(f"{MAKE}{other}{job}")
    assert facts.kind(call_to(facts, "use(").args[0].value) == expected


def test_a_variable_holds_what_the_last_cell_gave_it() -> None:
    facts = facts_of("model = 'a name'", f"{LOAD}use(model)", "model = 1")
    assert kind(facts, "model") == "model"
