"""The options of a conversion, for the command line, the Python API and the magic.

A new option is one field of `Options` and one key of `OptionKeywords`, here, and its test in
tests/unit/test_options.py. The flags of `nb2ddp convert` and `%%run_ddp` and the table in docs/commands.md are
made from the fields.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args, get_origin, get_type_hints

from nb2ddp.errors import OptionError
from nb2ddp.regular_files import opened

Batch = Literal["preserve", "scale"]
Strategy = Literal["ddp", "fsdp", "balanced"]


def option(
    text: str,
    default: Any = None,
    *,
    minimum: int | None = None,
    metavar: str | None = None,
    otherwise: str = "",
) -> Any:
    """Return a field of a dataclass whose fields are options of a command.

    Args:
        text: what `--help` says of it, a sentence.
        default: what is taken where the option is not given.
        minimum: the smallest number that is allowed.
        metavar: how `--help` calls the value.
        otherwise: the default in words, where ``default`` does not tell it.
    """
    about = {"help": text, "minimum": minimum, "metavar": metavar, "otherwise": otherwise}
    return field(default=default, metadata=about)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user asked of a conversion. Each rule gets the same `Options`.

    Raises:
        OptionError: a value is of the wrong type, out of range, or none of the choices.
    """

    nproc: int = option(
        "Number of GPUs in the commands that are printed and written; the script runs on any number.",
        2,
        metavar="N",
        minimum=1,
    )
    batch: Batch = option(  # noqa: RUF009, a field
        "Keep the notebook's effective batch, which is the same training run (preserve), or give each "
        "GPU the notebook's per-device batch, which is N times the data in a step (scale).",
        "preserve",
    )
    strategy: Strategy = option(  # noqa: RUF009, a field
        "Put a copy of the model on each GPU (ddp), let Unsloth shard it over the GPUs, so that each trains "
        "with a share of it (fsdp), or spread one model over all GPUs in one process (balanced).",
        "ddp",
    )
    gpu_memory: float = option(
        "Memory of one GPU in GiB; a model that does not fit is noted.", 15.0, metavar="GIB", minimum=1
    )
    owner: str | None = option("Your Kaggle user name, for the Kaggle bundle.", metavar="NAME")
    title: str | None = option(
        "Title of the kernel on Kaggle.", metavar="TEXT", otherwise="the notebook's name"
    )
    single_file: bool = option(
        "Put the text of ddp_support.py into the script, instead of a file beside it.", False
    )

    def __post_init__(self) -> None:
        for setting in settings():
            setting.check(getattr(self, setting.name))

    @property
    def processes(self) -> int:
        """Return how many processes the script is started with on one machine."""
        return 1 if self.strategy == "balanced" else self.nproc

    def with_(self, **changes: Any) -> Options:
        """Return a copy with other values.

        Raises OptionError for an option that does not exist, and for a value that cannot be.
        """
        import difflib

        known = [setting.name for setting in settings()]
        for name in changes:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"the options are {', '.join(known)}."
                raise OptionError(f"there is no option {name}; {hint}")
        return dataclasses.replace(self, **changes)


class OptionKeywords(TypedDict, total=False):
    """The keywords of `nb2ddp.convert`: the fields of `Options`."""

    nproc: int
    batch: Batch
    strategy: Strategy
    gpu_memory: float
    owner: str | None
    title: str | None
    single_file: bool


@dataclass(frozen=True)
class Setting:
    """One option, as a command line needs it.

    type: int, float, str or bool; a bool is a flag without a value.
    choices: the values that are allowed, empty for any.
    minimum: the smallest number that is allowed.
    metavar: how `--help` calls the value.
    otherwise: what is taken where the default is None, in words.
    several: the option may be repeated.
    """

    name: str
    type: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    metavar: str | None = None
    otherwise: str = ""
    several: bool = False

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    def check(self, value: Any) -> None:
        """Raise OptionError where `value` cannot be this option's."""
        if value is None and self.default is None:
            return
        if self.choices:
            if value not in self.choices:
                raise OptionError(f"{self.name} cannot be {value!r}; choose {' or '.join(self.choices)}.")
            return
        kinds = (int, float) if self.type is float else (self.type,)
        if type(value) not in kinds:  # not isinstance: True is no number
            raise OptionError(f"{self.name} cannot be {value!r}; it has to be {_IN_WORDS[self.type]}.")
        if self.minimum is not None and not self.minimum <= value < math.inf:
            raise OptionError(f"{self.name} cannot be {value!r}; it has to be {self.minimum} or more.")


_IN_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def settings() -> tuple[Setting, ...]:
    """Return the options, in the order of the fields."""
    return settings_of(Options)


def given(values: Mapping[str, Any], defaults: Options | None = None) -> Options:
    """Return the options among ``values``; what is missing or None is as in ``defaults``."""
    names = {setting.name for setting in settings()}
    chosen = {name: value for name, value in values.items() if name in names and value is not None}
    return (defaults or Options()).with_(**chosen)


def file_defaults(folder: Path) -> Options:
    """Return the options that the nearest nb2ddp.toml, or [tool.nb2ddp] in a pyproject.toml, gives.

    Looked for in ``folder`` and the folders above it. A hyphen may stand for an underscore.

    Raises OptionError for a file that is no TOML, for a key that is no option, and for a wrong value.
    """
    for place in (folder, *folder.absolute().parents):
        for name, keys in (("nb2ddp.toml", ()), ("pyproject.toml", ("tool", "nb2ddp"))):
            table = _table(place / name, keys)
            if table is not None:
                try:
                    return Options().with_(**{key.replace("-", "_"): value for key, value in table.items()})
                except OptionError as error:
                    raise OptionError(f"{place / name}: {error}") from None
    return Options()


def _table(file: Path, keys: Sequence[str]) -> dict[str, Any] | None:
    """Return a table of a TOML file; None where there is no such file or no such table."""
    import tomllib

    try:
        with open(file, "rb", opener=opened) as stream:
            table: Any = tomllib.load(stream)
    except (FileNotFoundError, NotADirectoryError, PermissionError, IsADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise OptionError(f"{file} is not a TOML file that can be read: {error}.") from None
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    if table is not None and not isinstance(table, dict):
        raise OptionError(f"{file}: nb2ddp has to be a table of options, not {table!r}.")
    return table


def argparse_options(without: Collection[str] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield the options as the arguments of ``ArgumentParser.add_argument``; a value not given is None."""
    import argparse

    for setting in settings():
        if setting.name in without:
            continue
        default = setting.otherwise or (setting.default if setting.type is not bool else None)
        text = setting.help.replace("%", "%%") + (f" [default: {default}]" if default is not None else "")
        if setting.type is bool:
            yield (setting.flag,), {"help": text, "action": argparse.BooleanOptionalAction, "default": None}
        elif setting.choices:
            yield (setting.flag,), {"help": text, "choices": list(setting.choices)}
        else:
            yield (setting.flag,), {"help": text, "type": setting.type, "metavar": setting.metavar}


@functools.cache
def settings_of(kind: type) -> tuple[Setting, ...]:
    """Return the options that a dataclass declares with `option`, in order."""
    hints = get_type_hints(kind)
    return tuple(_setting(entry, hints[entry.name]) for entry in dataclasses.fields(kind))


def _setting(entry: dataclasses.Field[Any], hint: Any) -> Setting:
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    if isinstance(hint, types.UnionType):  # str | None
        hint = next(part for part in get_args(hint) if part is not types.NoneType)
    several = get_origin(hint) is Sequence
    kind = str if choices else get_args(hint)[0] if several else hint
    return Setting(entry.name, kind, entry.default, choices=choices, several=several, **entry.metadata)
