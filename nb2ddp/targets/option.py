"""Describe the options of an emit target as fields of its dataclass; the command line is made from them."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin, get_type_hints


@dataclasses.dataclass(frozen=True)
class TargetOption:
    """One option of a target, as a command line needs it.

    name: the field. type: int or str. default: None or () where nothing is taken unless it is said.
    several: the option may be repeated. metavar: how `--help` calls the value.
    """

    name: str
    flag: str
    type: type
    default: Any
    several: bool
    help: str
    metavar: str | None


def option(
    text: str,
    default: Any = None,
    *,
    flag: str | None = None,
    metavar: str | None = None,
    otherwise: str | None = None,
) -> Any:
    """Return a field of a target's dataclass, which is an option of `nb2ddp emit` too.

    Args:
        text: what `--help` says of it, a sentence.
        default: what is taken where the option is not given.
        flag: the option, where it is not the field's name with hyphens.
        metavar: how `--help` calls the value.
        otherwise: the default in words, where ``default`` does not tell it.
    """
    return dataclasses.field(
        default=default, metadata={"help": text, "flag": flag, "metavar": metavar, "otherwise": otherwise}
    )


def options_of(target: type) -> Iterator[TargetOption]:
    """Yield the options that a target's dataclass declares with `option`, in order."""
    hints = get_type_hints(target)
    for entry in dataclasses.fields(target):
        kind = hints[entry.name]
        if isinstance(kind, types.UnionType):  # str | None
            kind = next(part for part in get_args(kind) if part is not types.NoneType)
        several = get_origin(kind) is Sequence
        said = entry.metadata["otherwise"] or entry.default
        yield TargetOption(
            entry.name,
            entry.metadata["flag"] or f"--{entry.name.replace('_', '-')}",
            get_args(kind)[0] if several else kind,
            entry.default,
            several,
            entry.metadata["help"] + (f"  [default: {said}]" if said not in (None, ()) else ""),
            entry.metadata["metavar"],
        )
