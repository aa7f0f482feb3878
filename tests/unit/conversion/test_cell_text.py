"""A cell's text is read as IPython reads it: automagic, and imports from __future__ in mid-cell."""

from __future__ import annotations

import pytest

from nb2ddp.conversion.cell_text import with_automagic, without_futures
from tests.support.helpers import converted

TRAIN = "import torch\nm = torch.nn.Linear(2, 2)\no = torch.optim.SGD(m.parameters())\nfor x in y:\n    m(x).backward()"


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("pip install -q trl\nimport os", "%pip install -q trl\nimport os"),
        ("pip3 install trl", "%pip install trl"),
        ("ls", "%ls"),
        ("ls -la\ncd data", "%ls -la\n%cd data"),
        ("mkdir = 3\nmkdir", "mkdir = 3\nmkdir"),
        ("cp = make()", "cp = make()"),
        ("cat.meow()", "cat.meow()"),
        ("rm in names", "rm in names"),
        ("ls += 1", "ls += 1"),
        ('"""\nls here\n"""', '"""\nls here\n"""'),
        ("f(\nls\n)", "f(\nls\n)"),
        ("%%bash\nls -la", "%%bash\nls -la"),
        ("if x:\n    ls", "if x:\n    ls"),
    ],
)
def test_commands_without_a_sign(source: str, read: str) -> None:
    assert with_automagic(source, frozenset({"mkdir"})) == read


def test_a_variable_goes_before_a_command() -> None:
    assert "%" not in with_automagic("cat", frozenset({"cat"}))
    made = converted("ls = [1]\nls", TRAIN)
    assert made.script is not None
    assert "ddp.show(ls)" in made.script.text


def test_imports_from_the_future_in_mid_cell_go_to_the_head() -> None:
    source = "import os\nfrom __future__ import annotations\nx = 1"
    assert without_futures(source) == ("import os\n\nx = 1", ["from __future__ import annotations"])
    made = converted(source, TRAIN)
    assert made.script is not None
    assert made.script.text.count("from __future__ import annotations") == 1
    assert made.script.text.index("from __future__") < made.script.text.index("import os")
    compile(made.script.text, "script", "exec")


def test_pictures_in_text_cells_are_left_out() -> None:
    from nb2ddp.conversion.script import _as_comments

    text = "![a](data:image/png;base64," + "iVBORw0KGgo" * 100 + ")\nmore"
    assert _as_comments(text) == ["# ![a](data:image/png;base64,...)", "# more"]
