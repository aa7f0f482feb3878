"""After the last statement that needs every rank, the others end and rank 0 goes on."""

from __future__ import annotations

import pytest

from nb2ddp.rules.finish import rule
from tests.support.helpers import check_rewritten

TRAINER = "from trl import SFTTrainer\ntrainer = SFTTrainer(model)\n"
FINISH = "ddp.finish()  # nb2ddp: only rank 0 runs what follows\n"


TRAINS = {
    "a trainer called t": "from trl import SFTTrainer as S\nt = S(llm)\nt.train()\n",
    "through the module": "import trl\nt = trl.SFTTrainer(llm)\nt.train()\n",
    "star import": "from trl import *\nt = SFTTrainer(llm)\nt.train()\n",
    "responses only": (
        "from unsloth.chat_templates import train_on_responses_only\n" + TRAINER + "trainer = "
        'train_on_responses_only(trainer, response_part="a")\ntrainer.train()\n'
    ),
    "a subclass": "from trl import SFTTrainer\nclass Mine(SFTTrainer):\n    pass\nt = Mine(llm)\nt.train()\n",
    "a subclass of a subclass": (
        "from transformers import Trainer\nclass A(Trainer):\n    pass\nclass B(A):\n    pass\n"
        "t = B(llm)\nt.train()\n"
    ),
    "unsloth_train": "from unsloth import unsloth_train\n" + TRAINER + "unsloth_train(trainer)\n",
    "in a with block": TRAINER + "with profiler:\n    trainer.train()\n    y = 1\n",
    "in a try": TRAINER + "try:\n    trainer.train()\nexcept KeyboardInterrupt:\n    pass\n",
    "in a for loop": TRAINER + "for seed in seeds:\n    trainer.train()\n",
    "under a main guard": "if __name__ == '__main__':\n    "
    + TRAINER.replace("\n", "\n    ")
    + "trainer.train()\n",
    "in a function": "from trl import SFTTrainer\ndef go():\n    SFTTrainer(llm).train()\ngo()\n",
    "in a function of a function": (
        "from trl import SFTTrainer\ndef run(t):\n    t = SFTTrainer(llm)\n    t.train()\n"
        "def go():\n    run(1)\ngo()\n"
    ),
    "evaluated at the end": TRAINER + "trainer.train()\nmetrics = trainer.evaluate()\n",
    "evaluated only": TRAINER + "if final:\n    trainer.evaluate()\n",
    "predictions at the end": TRAINER + "trainer.train()\npredictions = trainer.predict(test)\n",
    "a search": TRAINER + "trainer.hyperparameter_search()\n",
    "two trainers": TRAINER + "trainer.train()\nsecond = SFTTrainer(model)\nsecond.train()\n",
    "a loop by hand": (
        "from torch.utils.data import DataLoader\nfor batch in DataLoader(data):\n"
        "    loss = model(batch).loss\n    loss.backward()\n"
    ),
}


@pytest.mark.parametrize("source", TRAINS.values(), ids=TRAINS.keys())
def test_the_other_ranks_end_after_the_last_training(source: str) -> None:
    after = '# save\nmodel.save_pretrained("lora")\n'
    result = check_rewritten(rule, source + after, source + FINISH + after)
    assert not result.declined
