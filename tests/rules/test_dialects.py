"""What people add by hand for several GPUs is taken over."""

from __future__ import annotations

from tests.support.helpers import converted


def test_a_script_of_ours_is_not_converted_again() -> None:
    load = "from unsloth import FastLanguageModel\nmodel, tok = FastLanguageModel.from_pretrained('m')\n"
    args = "from trl import SFTConfig, SFTTrainer\ntrainer = SFTTrainer(model, args=SFTConfig('o'))\n"
    script = converted(load, args, "trainer.train()").files["train_ddp.py"]
    again = converted(script)
    assert again.status == "declined"
    assert any("nb2ddp has made already" in declined.why for declined in again.declined)
