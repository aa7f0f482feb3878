"""The init block stands below what sets the environment, and above all that may need a rank or a GPU."""

from __future__ import annotations

import pytest

from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.init_place import first_below, touches_environment
from nb2ddp.source.cells import parse_cell
from nb2ddp.source.cst_nodes import code_of


@pytest.mark.parametrize(
    ("code", "first"),
    [
        ("import os\nos.environ['A'] = '1'\nimport torch\nx = 1", "import torch"),
        ("import os\nimport json\nname = 'a'\nprint(name)\nimport torch", "print(name)"),
        ("from __future__ import annotations\nimport os\nopen('a', 'w')", "open('a', 'w')"),
        (
            "import os\nif True:\n    os.environ['A'] = '1'\nfor x in rows:\n    work(x)",
            "for x in rows:\n    work(x)",
        ),
        ("device = 'cuda:0'\nimport torch", "device = 'cuda:0'"),
        ("import os\nos.environ['A'] = '1'\nprint(os.environ['A'])\nx = 1", "print(os.environ['A'])"),
        ("import os\n'a'\nos.environ['A'] = '1'", None),
    ],
)
def test_the_first_statement_below(code: str, first: str | None) -> None:
    found = first_below(Facts([parse_cell(1, code)]))
    assert (None if found is None else code_of(found).strip()) == first


def test_what_sets_the_environment() -> None:
    facts = Facts([parse_cell(1, "import os, sys\nos.environ['A'] = '1'\nsys.path.append('a')\nx = 1")])
    assert [touches_environment(statement) for statement in facts.top_statements] == [
        False,
        True,
        True,
        False,
    ]
