"""Notebooks of marimo: their cells in the order in which marimo runs them, and what a script cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest

from nb2ddp.errors import NotebookError
from nb2ddp.source.marimo import is_marimo
from nb2ddp.source.notebook import Notebook, parse_notebook

HEAD = 'import marimo\n\n__generated_with = "0.23.8"\napp = marimo.App(width="medium")\n\n'
END = '\n\nif __name__ == "__main__":\n    app.run()\n'


def read(*cells: str, head: str = HEAD) -> Notebook:
    text = head + "\n\n".join(cells) + END
    assert is_marimo(text)
    return parse_notebook(Path("tuning.py"), text)


def sources(*cells: str, head: str = HEAD) -> list[str]:
    return [cell.source for cell in read(*cells, head=head).cells]


def test_a_cell_runs_after_those_whose_names_it_uses_else_in_the_files_order() -> None:
    assert sources(
        "@app.cell\ndef _(rate, steps):\n    print(rate * steps)\n    return",
        "@app.cell\ndef _():\n    # how fast\n    rate = 2\n    return (rate,)",
        "@app.cell\ndef _(rate):\n    def scaled(x):\n        return x * rate\n\n    return (scaled,)",
        "@app.cell\ndef _(\n    scaled,  # defined above\n):\n    steps = scaled(3)\n    return (steps,)",
        "with app.setup:\n    import math",
        "@app.cell\ndef _(steps):\n    del steps\n    return",
    ) == [
        "# how fast\nrate = 2",
        "def scaled(x):\n    return x * rate",
        "steps = scaled(3)",
        "print(rate * steps)",
        "import math",
        "del steps",
    ]


def test_texts_are_text_and_marimo_goes_where_nothing_needs_it() -> None:
    cells = read(
        "@app.cell\ndef _():\n    import marimo as mo\n    return (mo,)",
        '@app.cell(hide_code=True)\ndef _(mo):\n    mo.md(r"""\n    # Tune\n    - it\n    """)\n    return',
        '@app.cell\ndef _(mo):\n    text = """\n    left\n      indented"""\n    return (text,)',
    ).cells
    assert [(cell.kind, cell.source) for cell in cells] == [
        ("markdown", "# Tune\n- it"),
        ("code", 'text = """\nleft\n  indented"""'),
    ]
    assert sources(
        "@app.cell\ndef _():\n    import marimo as mo\n    return (mo,)",
        '@app.cell\ndef _(mo):\n    mo.md(f"{1}")\n    return',
    ) == ['print(f"{1}")']


def test_functions_classes_and_cells_that_marimo_could_not_parse() -> None:
    assert sources(
        "@app.function\n# squares\ndef squared(x):\n    return x * x",
        "@app.class_definition\nclass Rows:\n    size = 3",
        'app._unparsable_cell(\n    r"""\n!ls\n""",\n    name="_"\n)',
    ) == ["# squares\ndef squared(x):\n    return x * x", "class Rows:\n    size = 3", "!ls"]


def test_a_disabled_cell_does_not_run_and_neither_does_what_needs_it() -> None:
    assert sources(
        "@app.cell(disabled=True)\ndef _():\n    a = 1\n    return (a,)",
        "@app.cell\ndef _(a):\n    b = a\n    return (b,)",
        "@app.cell\ndef _():\n    c = 1\n    return",
    ) == ["c = 1"]


def test_a_name_with_an_underscore_is_each_cells_own() -> None:
    first, second, third = sources(
        "@app.cell\ndef _():\n    _rows = [1]\n    def count():\n        return len(_rows)\n    return (count,)",
        "@app.cell\ndef _(x):\n    _rows = x.y._rows + f(_rows=3)\n    return",
        "@app.cell\ndef _():\n    from m import _only\n    return",
    )
    assert first == "_rows_1 = [1]\ndef count():\n    return len(_rows_1)"
    assert second == "_rows_2 = x.y._rows + f(_rows=3)"
    assert third == "from m import _only"


def test_the_packages_of_the_header_are_installed() -> None:
    header = '# /// script\n# requires-python = ">=3.11"\n# dependencies = [\n#     "marimo",\n#     "trl==0.22.2",\n'
    header += '#     "unsloth @ git+https://github.com/unslothai/unsloth",\n# ]\n# ///\n\n' + HEAD
    first, _ = sources(
        "@app.cell\ndef _():\n    x = 1\n    return",
        "@app.cell\ndef _():\n    y = 1\n    return",
        head=header,
    )[:2]
    assert first == "%pip install trl==0.22.2 'unsloth @ git+https://github.com/unslothai/unsloth'"


@pytest.mark.parametrize(
    ("block", "installs"),
    [
        ("# dependencies = ['torch>=2']", ["%pip install 'torch>=2'"]),
        ("# requires-python = '>=3.11'\n# dependencies = ['a', 'b'] # both", ["%pip install a b"]),
        ("# dependencies = 'a'", []),
        ("# dependencies = [", []),
    ],
)
def test_the_header_is_read_as_toml(block: str, installs: list[str]) -> None:
    cells = sources(
        "@app.cell\ndef _():\n    x = 1\n    return", head=f"# /// script\n{block}\n# ///\n\n{HEAD}"
    )
    assert cells == [*installs, "x = 1"]


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        (
            ["@app.cell\ndef _():\n    import marimo as mo\n    rate = mo.ui.slider(1, 9)\n    return"],
            r"mo\.ui\.slider",
        ),
        (
            ["@app.cell\ndef _(b):\n    a = b\n    return", "@app.cell\ndef _(a):\n    b = a\n    return"],
            "circle",
        ),
        (["@app.cell\ndef _(:\n    pass"], "line 7, is not valid Python"),
    ],
)
def test_what_a_script_cannot_do_is_said(cells: list[str], why: str) -> None:
    with pytest.raises(NotebookError, match=why):
        read(*cells)


def test_a_script_that_only_imports_marimo_is_none_of_its_notebooks() -> None:
    assert not is_marimo("import marimo\nprint(marimo.__version__)\n")


TRAINING = (
    "@app.cell\ndef _(model, optimizer, rows):\n    losses = []\n    for _epoch in range(2):\n"
    "        for _batch in rows.split(4):\n            loss = ((model(_batch) - 1) ** 2).mean()\n"
    "            optimizer.zero_grad()\n            loss.backward()\n            optimizer.step()\n"
    "            losses.append(loss.item())\n    note(losses=losses)\n    return (losses,)",
    "@app.cell\ndef _(torch):\n    torch.manual_seed(0)\n    model = torch.nn.Linear(4, 1)\n"
    "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n    return model, optimizer",
    "@app.cell\ndef _(torch):\n    rows = torch.arange(48.0).reshape(12, 4) / 48\n    return (rows,)",
    "@app.cell\ndef _():\n    import torch\n\n    return (torch,)",
)
