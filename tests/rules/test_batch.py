"""The notebook's batch is split over the ranks, wherever its parts are written."""

from __future__ import annotations

import pytest

from nb2ddp.options import Options
from nb2ddp.rules.batch import rule
from tests.support.helpers import apply, check_rewritten

HEAD = "from functools import partial\nfrom trl import DPOConfig, SFTConfig, SFTTrainer\n"
KEYS = "per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank"


def share(batch: str, steps: str, indent: str = "") -> str:
    return (
        f"{indent}batch_per_rank, accumulation_per_rank = ddp.share_batch({batch}, {steps})"
        "  # nb2ddp: the notebook's batch, split\n"
    )


CLASSES = {
    "another name": ("from trl import SFTConfig as C", "C"),
    "through the module": ("import trl as rl", "rl.SFTConfig"),
    "a star import": ("from trl import *", "SFTConfig"),
    "Transformers' arguments": ("import transformers", "transformers.TrainingArguments"),
    "Unsloth's arguments": ("from unsloth import UnslothTrainingArguments as C", "C"),
    "a subclass": ("import trl\nclass C(trl.SFTConfig):\n    pass", "C"),
}


@pytest.mark.parametrize(("header", "name"), CLASSES.values(), ids=CLASSES.keys())
def test_arguments_are_known_by_their_class(header: str, name: str) -> None:
    check_rewritten(
        rule,
        f"{header}\nargs = {name}(per_device_train_batch_size=2)\n",
        f"{header}\n{share('2', '1')}args = {name}({KEYS})\n",
        options=Options(strategy="fsdp"),
    )


@pytest.mark.parametrize(("end", "count"), [("", 1), (".prepare", 0)], ids=["all the data", "shared out"])
def test_a_loader_of_its_own_gives_every_rank_all_the_data(end: str, count: int) -> None:
    loader = "DataLoader(self.train_dataset, batch_size=2)"
    value = f"self.accelerator.prepare({loader})" if end else loader
    source = (
        "from torch.utils.data import DataLoader\nfrom transformers import Trainer\n"
        f"class Mine(Trainer):\n    def get_train_dataloader(self):\n        return {value}\n"
        'args = SFTConfig("o", per_device_train_batch_size=2)\nt = Mine(llm, args)\nt.train()\n'
    )
    assert len(apply(rule, HEAD + source, options=Options(strategy="fsdp")).declined) == count
