"""Write docs/handled.md from the rules: what is changed, and what is declined.

    python docs/make_table.py [--check]

With --check nothing is written; the exit code is 1 when the page is out of date. `make docs` writes it.
"""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path

from nb2ddp.rules import BALANCED_RULES, RULES

PAGE = Path(__file__).parent / "handled.md"
HEAD = """\
# What is handled, and what is declined

<!-- Made from the rules by docs/make_table.py; `make docs` makes it again. -->

Every rule, in the order in which rules are applied. `nb2ddp rules RULE` shows a before and after.

| rule | what it does | declines |
|---|---|---|
"""
FOOT = """
A declined notebook is told the cell, the line and the reason, and nothing is written for it. Apart from the
rules, a notebook is declined when a cell is no valid Python, when an expression is nested too deeply to be
read, when its kernel speaks another language, and when `await` stands outside a function. A notebook without
training is told what is missing in it: the Trainer, its `train()`, the loop, or a library that trains.

With `--strategy balanced` one process holds the model, spread over all GPUs; these rules are applied then:
"""


def sentences(source: str, kind: str) -> list[str]:
    """The texts of the ``Decline("...")`` calls of a rule, with "..." for what is filled in."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    texts = []
    for call in calls:
        if isinstance(call.func, ast.Name) and call.func.id == kind and call.args:
            texts.append(text(call.args[0]))
    return [found for found in dict.fromkeys(texts) if found]


def text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return ""


def page() -> str:
    rows = []
    for rule in RULES:
        module = inspect.getmodule(rule.find)
        assert module is not None
        first = rule.doc.strip().splitlines()[0]
        declines = "<br>".join(sentences(inspect.getsource(module), "Decline"))
        rows.append(f"| `{rule.name}` | {first} | {declines} |".replace("\n", " "))
    balanced = ", ".join(f"`{rule.name}`" for rule in BALANCED_RULES)
    return HEAD + "\n".join(rows) + "\n" + FOOT + f"{balanced}.\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
