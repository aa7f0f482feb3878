"""Warn of tokens and passwords in what a conversion copies, the notebook's code and texts, and show none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nb2ddp.rewriting.engine import Rewritten
from nb2ddp.rewriting.findings import Change
from nb2ddp.secrets import Text, masker, scan
from nb2ddp.source.cells import Place
from nb2ddp.source.notebook import Notebook

RULE = "secret"


def secret_notes(notebook: Notebook) -> Iterator[Change]:
    """Yield a note for each secret, with its place, kind and fingerprint, never its value.

    Outputs are not looked at: a conversion drops them. `push` looks at the notebook's file, outputs included.
    """
    texts: list[Text] = []
    numbers: list[int] = []
    last = 0
    for cell in notebook.cells:
        last = cell.number or last
        numbers.append(cell.number)
        place = "" if cell.number else f"the text after cell {last}, line "
        texts.append(Text(f"{len(texts)}:{place}", cell.source))
    for secret in scan(texts):
        index, _, text = secret.place.partition(":")
        number = numbers[int(index)]
        where = "here" if number else f"in {text}{secret.line}"
        why = (
            f"a secret, {secret.kind}, is written {where}, and so in the script and the bundle: take it out, read it "
            f"from the environment, and revoke it ('--allow-secret {secret.fingerprint}' lets push send what is none)"
        )
        yield Change(RULE, Place(number, secret.line) if number else None, why)


def masked(notebook: Notebook, rewritten: Rewritten) -> Rewritten:
    """Put a mark in the place of each of the notebook's secrets in what is said of it: a reason may quote code."""
    mask = masker([cell.source for cell in notebook.cells])

    def told(changes: tuple[Change, ...]) -> tuple[Change, ...]:
        return tuple(replace(change, why=mask(change.why)) for change in changes)

    return replace(
        rewritten,
        changes=told(rewritten.changes),
        declined=told(rewritten.declined),
        notes=told(rewritten.notes),
    )
