"""No value of a secret is left in code that is shown."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from nb2ddp.secrets import masker
from tests.support.tokens import TOKENS, some

Place = Callable[[str], tuple[dict[str, Any], str]]


@pytest.mark.parametrize("rule", TOKENS)
def test_no_value_is_left_in_code_that_is_shown(rule: str) -> None:
    value, around = TOKENS[rule]
    text = f"import wandb, modal\n{around.format(value)}\nx = 1"
    masked = masker([text])(text)
    assert rule == "private-key" or value not in masked
    assert "***" in masked or rule == "private-key"
    assert masked.endswith("\nx = 1")
    assert len(masked.splitlines()) == len(text.splitlines())


def test_parts_keys_and_base64_are_masked() -> None:
    value = TOKENS["huggingface-token"][0]
    encoded = base64.b64encode(value.encode()).decode()
    key = some(64) + "\n" + some(64)
    text = (
        f'a = "{value[:12]}" + "{value[12:]}"\nb = b64decode("{encoded}")\n'
        f'c = """-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----"""'
    )
    masked = masker([text])(text)
    for piece in (value[:12], value[12:], encoded, *key.split("\n")):
        assert piece not in masked
    plain = "x = 'hf_...'\nmodel = load('unsloth/llama')"
    assert masker([plain])(plain) == plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://default:train@cache\ntrainer.train()", "redis://default:***@cache\ntrainer.train()"),
        ("redis://me:a1B2c3D4e5@cache\nas a1B2c3D4e5: no", "redis://me:***@cache\nas ***: no"),
        ("postgresql://postgres:postgres@h/postgres", "postgresql://postgres:***@h/postgres"),
        (
            "k = k.replace('-----BEGIN PRIVATE KEY-----', '').replace('-----END PRIVATE KEY-----', '')",
            "k = k.replace('-----BEGIN PRIVATE KEY-----', '').replace('-----END PRIVATE KEY-----', '')",
        ),
    ],
)
def test_a_mark_leaves_the_rest_of_the_code(text: str, shown: str) -> None:
    assert masker([text])(text) == shown
