"""``nb2ddp rules``."""

from __future__ import annotations

import click


@click.command()
@click.argument("name", metavar="[RULE]", required=False)
def rules(name: str | None) -> None:
    """List the rules, or show what one of them does.

    \b
    Example:
      nb2ddp rules
      nb2ddp rules batch
    """
    from nb2ddp.rules import RULES

    if name is None:
        width = max(len(rule.name) for rule in RULES)
        for rule in RULES:
            click.echo(f"{rule.name.ljust(width)}  {rule.doc.strip().splitlines()[0]}")
        return
    for rule in RULES:
        if rule.name == name:
            click.echo(rule.doc.strip())
            return
    raise click.UsageError(f"there is no rule {name!r}; `nb2ddp rules` lists them.")
