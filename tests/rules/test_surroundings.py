"""A page, a keyboard and Colab's services are not there in a script."""

from __future__ import annotations

import pytest

from nb2ddp.rules.surroundings import rule
from tests.helpers import apply, check_rewritten, check_untouched, converted

TRAINS = "\nfrom trl import SFTTrainer\ntrainer = SFTTrainer(model)\ntrainer.train()\n"


def test_a_function_of_the_notebook_may_be_called_input() -> None:
    check_untouched(rule, "def input(text):\n    return 1\ninput('x')\n" + TRAINS)


def test_plots_are_saved() -> None:
    check_rewritten(
        rule,
        "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\n",
        "import matplotlib.pyplot as plt\nplt.plot([1])\nsave_plots()\n",
    )


@pytest.mark.parametrize("call", ["input('name? ')", "getpass.getpass()"])
def test_a_keyboard_before_training_is_declined(call: str) -> None:
    (declined,) = apply(rule, f"import getpass\nname = {call}\n{TRAINS}").declined
    assert "keyboard" in declined.why
    assert declined.place is not None
    assert declined.place.line == 2


def test_a_keyboard_after_training_is_noted() -> None:
    result = apply(rule, TRAINS + "question = input()\n")
    assert not result.declined
    assert result.notes


def test_colab_secrets_come_from_the_environment() -> None:
    check_rewritten(
        rule,
        "from google.colab import userdata\nkey = userdata.get('HF_TOKEN')\n",
        "key = os.environ.get('HF_TOKEN')\n",
    )


def test_colab_mounts_and_downloads_go() -> None:
    check_rewritten(
        rule,
        "from google.colab import drive, files\n"
        "drive.mount('/content/drive')\nfiles.download('a.zip')\nx = 1\n",
        "x = 1\n",
    )


def test_an_upload_is_declined() -> None:
    assert apply(rule, "from google.colab import files\nup = files.upload()\n").declined


def test_counting_gpus_is_noted() -> None:
    assert apply(rule, "import torch\nn = torch.cuda.device_count()\n").notes


def test_saved_plots_are_numbered_in_the_script() -> None:
    load = "from unsloth import FastLanguageModel\nmodel, tok = FastLanguageModel.from_pretrained('m')\n"
    trainer = "from trl import SFTConfig, SFTTrainer\ntrainer = SFTTrainer(model, args=SFTConfig('o'))\n"
    plot = "import matplotlib.pyplot as plt\nplt.show()\n"
    script = converted(load, plot, trainer, "trainer.train()").files["train_ddp.py"]
    assert "def save_plots():" in script
    assert "import itertools" in script
