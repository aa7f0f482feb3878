"""Tell calls of a model apart by its settings: what it may compute by, beside the arguments that it is given."""

from collections.abc import Iterator
from typing import Any

import torch

from nb2ddp.runtime.module_state import _holders, _is_of_library, _values

_MOST_ENTRIES = 50  # of a dict that is looked into, a configuration say
_MISSING_YET = object()


class _Settings:
    """The classes and modes of a model's modules, and the plain values that a notebook's own classes compute by.

    These are whole numbers, texts and flags: attributes of such modules and of the objects in them, of their classes,
    and global names that their methods use. No fractions: a time that is measured is another one on each rank.
    """

    most_values = 8  # of one setting that count as different

    def __init__(self) -> None:
        self.parts: tuple[Any, ...] = ()
        self.holders: list[Any] = []
        self.now: dict[Any, Any] = {}
        self.seen: dict[Any, list[Any]] = {}  # by setting, its values in the order in which they came
        self.changes: dict[Any, int] = {}  # by setting that has had more of them: how often it has changed
        self.places: dict[Any, int] = {}  # of the settings that are not at their first value
        self.counts = set[Any]()  # what calls of the model change by themselves: no settings

    def of(self, model: torch.nn.Module) -> frozenset[tuple[Any, int]]:
        """Return what tells the present settings from others.

        It says which of a setting's values this is, the first or the third. From the ninth on it changes less and less
        often. Ranks have to change their settings in the same calls.
        """
        parts = tuple((type(part), part.training) for part in model.modules())
        if [kind for kind, _ in parts] != [kind for kind, _ in self.parts]:
            self.holders = [holder for _, holder in _holders(model)]
            library = [part for part in model.modules() if _is_of_library(part)]
            left = {id(of) for part in library for of in (part.__dict__, part._buffers)}
            self.holders = [holder for holder in self.holders if id(holder) not in left]
        self.parts = parts
        values = self._present()
        if values != self.now:
            for setting in values.keys() | self.now.keys():
                value = values.get(setting, _MISSING_YET)
                if not _is_same(value, self.now.get(setting, _MISSING_YET)):
                    self._note(setting, value)
            self.now = values
        return frozenset(self.places.items())

    def leave_out_counts(self) -> None:
        """Leave out what the call that ends here has changed: the model counts its calls, say."""
        now = self._present()
        for setting in now.keys() | self.now.keys():
            if not _is_same(now.get(setting, _MISSING_YET), self.now.get(setting, _MISSING_YET)):
                self.counts.add(setting)
                self.places.pop(setting, None)
        self.now = self._present()

    def _present(self) -> dict[Any, Any]:
        values = {name: value for name, value in self._plain_values() if name not in self.counts}
        return {**values, "modules": self.parts}

    def _plain_values(self) -> Iterator[tuple[Any, Any]]:
        for number, holder in enumerate(self.holders):
            for name, value in _values(holder).items():
                if isinstance(value, int | str) or value is None:
                    yield (number, name), value
                elif isinstance(value, dict) and len(value) <= _MOST_ENTRIES:
                    for key, inner in value.items():
                        if isinstance(inner, int | str) or inner is None:
                            yield (number, name, str(key)), inner

    def _note(self, setting: Any, value: Any) -> None:
        """Note another value of a setting, and which of its values that is."""
        seen = self.seen.setdefault(setting, [_MISSING_YET] if self.now else [])
        place = next((place for place, other in enumerate(seen) if _is_same(value, other)), len(seen))
        if place == len(seen) < self.most_values:
            seen.append(value)
        elif place == len(seen):
            self.changes[setting] = self.changes.get(setting, 0) + 1
            place += self.changes[setting].bit_length()
        self.places[setting] = place
        if place == 0:
            del self.places[setting]


def _is_same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (
        one is other or bool(one == other) or (one != one and other != other)
    )
