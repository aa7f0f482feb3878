"""``nb2ddp rules``."""

from __future__ import annotations

import inspect
import shutil
import sys
from dataclasses import dataclass

import click

from nb2ddp.cli.common import echo, to_width

_COLORS = {"+": "green", "-": "red"}


@dataclass(frozen=True)
class Page:
    """What a rule's docstring says: the first line, the paragraphs below it, and the lines of its diff."""

    summary: str
    paragraphs: tuple[str, ...]
    diff: tuple[str, ...]

    @property
    def changes(self) -> bool:
        """Whether the rule changes code; some only tell something."""
        return any(line[:1] in _COLORS for line in self.diff)


def page_of(doc: str) -> Page:
    """Return the parts of a rule's docstring, without the marks of reStructuredText."""
    text, _, diff = inspect.cleandoc(doc).partition(".. code-block:: diff")
    first, *others = [" ".join(block.split()) for block in text.replace("``", "`").strip().split("\n\n")]
    return Page(first, tuple(others), tuple(inspect.cleandoc(f"\n{diff.strip(chr(10))}").splitlines()))


@click.command()
@click.argument("name", metavar="[RULE]", required=False)
def rules(name: str | None) -> None:
    """List the rules of a conversion, or show what one of them does.

    \b
    Example:
      nb2ddp rules
      nb2ddp rules batch
    """
    from nb2ddp.rules import RULES

    pages = {rule.name: page_of(rule.doc) for rule in RULES}
    if name is None:
        width = max(map(len, pages))
        for each, page in pages.items():
            echo(to_width(f"{each.ljust(width)}  {page.summary}", sys.stdout))
        return
    if name not in pages:
        raise click.UsageError(f"there is no rule {name!r}{_nearest(name, list(pages))}")
    page = pages[name]
    echo(name, bold=True)
    for paragraph in (page.summary, *page.paragraphs):
        echo(f"\n{click.wrap_text(paragraph, min(100, shutil.get_terminal_size().columns))}")
    title = "In the notebook (-) and in the script (+):" if page.changes else "For example:"
    echo(f"\n{title}", bold=True)
    for line in page.diff:
        echo(f"  {line}".rstrip(), fg=_COLORS.get(line[:1]))


def _nearest(name: str, names: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, names, 1)
    return f". Did you mean {near[0]!r}?" if near else "; `nb2ddp rules` lists them."
