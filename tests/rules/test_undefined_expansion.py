"""What IPython leaves as it is written, because a name in it has no value there, the script leaves too."""

from __future__ import annotations

import pytest

from tests.unit.attack.test_any_notebook import convert_with

LEFT = [
    "%set_env X={y}",
    "%env X=$y",
    "%set_env X={tokenizer}{y}",
    "def f():\n    y = 1\n%set_env X={y}",
    "%set_env X={y}\ny = 1",
    "%set_env X={y + 1}",
]


@pytest.mark.parametrize("cell", LEFT)
def test_an_undefined_name_is_left_as_it_is(cell: str) -> None:
    result = convert_with(cell)
    text = next(line for line in cell.split("\n") if line.startswith("%")).partition("=")[2]
    assert f'os.environ["X"] = "{text}"' in result.files["train_ddp.py"]


@pytest.mark.parametrize(
    "cell",
    [
        "y = 1\n%set_env X={y}",
        "import os as y\n%set_env X={y}",
        "for n in range(2):\n    %set_env X={y}\n    y = n",
        "def f(y):\n    %set_env X={y}",
        "%set_env X={1 + 1}",
    ],
)
def test_a_defined_name_is_expanded(cell: str) -> None:
    result = convert_with(cell)
    assert 'os.environ["X"] = f"{' in result.files["train_ddp.py"]
