"""What a notebook shows below a cell, the script prints; what it does not show, stays quiet."""

from __future__ import annotations

import pytest

from nb2ddp.rules.cell_output import rule
from tests.support.helpers import apply, check_settles, check_untouched

SHOWS_NOTHING = {
    "an assignment": "x = 1\n",
    "a semicolon behind the value": "plt.plot(losses);",
    "a comment behind the semicolon": "plt.plot(losses);  # no text above the plot",
    "print": "print(x)",
    "display of IPython": "from IPython.display import display\ndisplay(df)",
    "training": "trainer.train()",
    "evaluation": "trainer.evaluate()",
    "the model's own report": "model.print_trainable_parameters()",
    "saving": 'model.save_pretrained("lora")',
    "pushing": 'tokenizer.push_to_hub("me/lora", token="x")',
    "appending to a list": "losses.append(1)",
    "a setting with a default": 'import os\nos.environ.setdefault("WANDB_DISABLED", "true")',
    "a search path": 'import sys\nsys.path.insert(0, ".")',
    "a shell line": "!ls",
    "a text at the end": 'x = 1\n"""\nmodel.save_pretrained("merged")\n"""',
    "a value inside an if": "if True:\n    x",
    "a function at the end": "def f():\n    x\n",
    "an empty cell": "",
    "only a comment": "# later",
}

SHOWN = {
    "a name": ("x", "ddp.show(x)"),
    "a name and a comment": ("x  # the shape", "ddp.show(x)  # the shape"),
    "lines after the value": ("dataset[0]\n# that was it\n\n", "ddp.show(dataset[0])\n# that was it\n\n"),
    "a semicolon in a comment": ("x  # not y;", "ddp.show(x)  # not y;"),
    "two values": ("a, b", "ddp.show((a, b))"),
    "a starred tuple": ("*a, b", "ddp.show((*a, b))"),
    "a generator": ("(i for i in x)", "ddp.show((i for i in x))"),
    "a walrus": ("(n := len(x))", "ddp.show((n := len(x)))"),
    "an f-string": ('f"{len(x)} rows"', 'ddp.show(f"{len(x)} rows")'),
    "a call": ("df.head()", "ddp.show(df.head())"),
    "the notebook's own function": ("def f():\n    return 1\nf()", "def f():\n    return 1\nddp.show(f())"),
    "the last of two on a line": ("x; y", "x; ddp.show(y)"),
    "a value over several lines": (
        "dataset.filter(\n    keep,  # short ones\n)",
        "ddp.show(dataset.filter(\n    keep,  # short ones\n))",
    ),
    "a value in parentheses": ("(\n    a\n    + b\n)", "ddp.show((\n    a\n    + b\n))"),
    "a notebook with a show of its own": ("show = 1\nshow", "show = 1\nddp.show(show)"),
    "a notebook with a ddp of its own": ("ddp = 1\nddp", "ddp = 1\nddp_ddp.show(ddp)"),
}


@pytest.mark.parametrize("source", SHOWS_NOTHING.values(), ids=SHOWS_NOTHING.keys())
def test_a_cell_that_shows_nothing_is_left_alone(source: str) -> None:
    check_untouched(rule, source)


@pytest.mark.parametrize(("before", "after"), SHOWN.values(), ids=SHOWN.keys())
def test_the_last_value_of_a_cell_is_shown(before: str, after: str) -> None:
    result = check_settles(rule, before, after) if "ddp_ddp" not in after else apply(rule, before)
    assert result.code[1] == after
