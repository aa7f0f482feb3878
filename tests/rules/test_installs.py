"""Installs leave the training script; what the training process needs of their cells stays."""

from __future__ import annotations

import pytest

from tests.support.cases import Case, cases_of
from tests.support.helpers import converted


@pytest.mark.parametrize("case", cases_of("installs", "gone"), ids=str)
def test_an_install_is_in_the_run_once_step(case: Case) -> None:
    trains = "from trl import SFTConfig, SFTTrainer\nt = SFTTrainer(m, args=SFTConfig('o'))\nt.train()"
    conversion = converted(*case.before, trains)
    assert conversion.status == "converted"
    setup = conversion.files["setup_env.py"]
    compile(setup, "setup_env.py", "exec")
    assert "install" in setup.split("# ---- cell 1 ----")[1]
    assert "install" not in conversion.files["train_ddp.py"].split("# ---- cell 2 ----")[1]
