"""A page, a keyboard and Colab's services are not there in a script."""

from __future__ import annotations

import pytest

from nb2ddp.rules.surroundings import rule
from tests.support.helpers import check_rewritten


@pytest.mark.parametrize(
    "call", ["login()", "login(token=None)", "login(add_to_git_credential=True)", "notebook_login()"]
)
def test_a_login_that_asks_somebody_goes(call: str) -> None:
    name = call.partition("(")[0]
    head = f"from huggingface_hub import {name}\n"
    result = check_rewritten(
        rule, f"{head}{call}\nx = 1\n", f"{head}# nb2ddp: a script reads the token from HF_TOKEN\nx = 1\n"
    )
    assert "HF_TOKEN" in result.changes[0].why
