"""Whatever shows a conversion shows no secret: the page, the diff, the reports; in parts as little as whole."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from nb2ddp.conversion import report, terminal
from nb2ddp.conversion.pipeline import Conversion
from nb2ddp.options import Options
from nb2ddp.page.page import page
from tests.support.helpers import converted
from tests.support.tokens import some
from tests.unit.attack.test_any_notebook import TRAINING

TOKEN = "hf_" + some(34)
FIVES = [TOKEN[n : n + 5] for n in range(0, len(TOKEN), 5)]
WHOLE = f'login(token="{TOKEN}")\nprint("on the GPU", torch.device("cuda:0"))'

CELLS = {
    "whole in one cell, in parts in another": [
        WHOLE,
        f'first = "{TOKEN[:12]}"\nsecond = "{TOKEN[12:]}"\nprint(put(first, second))',
    ],
    "whole, and in short parts that nothing can follow": [
        WHOLE,
        f"print(put({', '.join(map(repr, FIVES))}))",
    ],
    "in short parts": ["print(" + " + ".join(map(repr, FIVES)) + ")"],
    "in short parts, in cells": [
        *(f"print('p'); p{n} = {part!r}" for n, part in enumerate(FIVES)),
        f"print({' + '.join(f'p{n}' for n in range(len(FIVES)))})",
    ],
    "a character each": ["t = ''.join([" + ", ".join(map(repr, TOKEN)) + "])\nprint(t)"],
    "added to": ["t = ''\n" + "\n".join(f"t += {part!r}" for part in FIVES) + "\nprint(t)"],
    "in a template": [f'print("{TOKEN[:4]}%s%s" % ("{TOKEN[4:8]}", "{TOKEN[8:]}"))'],
    "in an f-string": [f'a = "{TOKEN[3:8]}"\nprint(f"hf_{{a}}{TOKEN[8:]}")'],
    "in a command": [WHOLE, f"!huggingface-cli login --token {TOKEN}"],
    "in a variable": [WHOLE, f"%env HF_TOKEN={TOKEN}"],
    "in a decline": [WHOLE, f'os.execv("{TOKEN}", ["{TOKEN[:5]}", "{TOKEN[5:]}"])\nexec("{TOKEN}")'],
}


def shown(conversion: Conversion) -> dict[str, str]:
    """Return all that is shown of a conversion."""
    out = io.StringIO()
    console = Console(file=out, width=200, highlight=False, markup=False, emoji=False)
    terminal.show(console, conversion, 2, "verbose")
    text = {
        "page": page(conversion, Options()),
        "report": json.dumps(report.as_json(conversion)),
        "lines": "\n".join([*report.lines(conversion), *report.github_lines(conversion)]),
        "terminal": out.getvalue(),
    }
    if conversion.script is not None:
        text["diff"] = "\n".join(terminal.diff(conversion))
    return text


@pytest.mark.parametrize("name", CELLS)
def test_nothing_shows_a_secret_or_a_part_of_it(name: str) -> None:
    result = converted(TRAINING[0], *CELLS[name], *TRAINING[1:])
    assert result.status == "converted" or "decline" in name, report.lines(result)
    for where, text in shown(result).items():
        plain = re.sub(r"<[^>]*>", "", text)
        assert TOKEN not in plain, where
        for part in FIVES:
            quoted = rf"""["'}}>]{re.escape(part)}["'{{%<]"""
            assert not re.search(quoted, text.replace("&#39;", "'").replace("&#34;", '"')), (where, part)
        for n in range(len(TOKEN) - 6):
            assert TOKEN[n : n + 6] not in plain, where
