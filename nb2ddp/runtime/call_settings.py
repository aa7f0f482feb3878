"""Notice that a model is called with other values or settings than before: its calls are compared again then."""

from collections.abc import Iterator
from typing import Any

import torch

from nb2ddp.runtime.module_state import _holders, _is_of_library, _values

_MOST_ENTRIES = 50  # of a dict that is looked into, a configuration say
_NONE_YET = object()


class _Settings:
    """The modes of a model's modules, the plain values that a notebook's own classes hold, and those of a call.

    Ranks have to change them in the same calls. What a call of the model changes by itself is none.
    """

    def __init__(self) -> None:
        self.modules: list[Any] = []
        self.holders: list[Any] = []
        self.seen: dict[Any, Any] = {}  # by setting, its latest value
        self.changes: dict[Any, int] = {}  # by setting, how often it has changed
        self.calls = 0

    def changed(self, model: torch.nn.Module, kind: Any, values: Any, *, often: bool) -> int:
        """Return 1 where a setting has changed for the first time, more where it had before; 0 for no reason.

        One that changes again and again counts in its 2nd, 4th, 8th change and so on; one that changes in most calls, a
        step's number say, in the 4th and 16th. Each change counts where comparing ``often`` costs nothing.
        """
        self.calls += 1
        self._see(model)
        found = 0
        now = {**dict(self._settings()), **{(kind, place): value for place, value in enumerate(values)}}
        for setting, value in now.items():
            old = self.seen.get(setting, _NONE_YET)
            if old is _NONE_YET and (self.calls == 1 or setting[0] is kind):
                continue
            if not _is_same(old, value):
                count = self.changes[setting] = self.changes.get(setting, 0) + 1
                often = 2 * count > self.calls
                if count & (count - 1) == 0 and (
                    not often or count.bit_length() % 2
                ):  # a power of 2, or of 4
                    found = max(found, count)
        self.seen.update(now)
        return found

    def note(self, model: torch.nn.Module) -> None:
        """Leave out what the call that ends here has changed: the model counts its calls, say."""
        self._see(model)
        self.seen.update(self._settings())

    def _see(self, model: torch.nn.Module) -> None:
        modules = [(type(part), part.training) for part in model.modules()]
        if [kind for kind, _ in modules] != [kind for kind, _ in self.modules]:
            library = [part for part in model.modules() if _is_of_library(part)]
            left = {id(of) for part in library for of in (part.__dict__, part._buffers)}
            self.holders = [of for _, of in _holders(model, with_names=False) if id(of) not in left]
        self.modules = modules

    def _settings(self) -> Iterator[tuple[Any, Any]]:
        yield "modules", self.modules
        for number, holder in enumerate(self.holders):
            for name, value in _values(holder).items():
                if isinstance(value, int | float | str) or value is None:
                    yield (number, name), value
                elif isinstance(value, dict) and len(value) <= _MOST_ENTRIES:
                    for key, inner in value.items():
                        if isinstance(inner, int | float | str) or inner is None:
                            yield (number, name, str(key)), inner


def _is_same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (
        one is other or bool(one == other) or (one != one and other != other)
    )
