"""Compute a batch and its parts without effects, for their outputs to be compared."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from nb2ddp.runtime.batch_parts import _Parts
from nb2ddp.runtime.call_results import _are_close
from nb2ddp.runtime.control_flow import _Looks, _looks_compiled
from nb2ddp.runtime.module_state import _holder_of, _is_batch_norm, _without_effects
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.random_rows import _generators, _RandomRows, _set_generators


class _Trial:
    """What a batch and then each of its parts give, all from the same state of the model and random numbers.

    ``compute`` calls the model, which is ``compiled`` where it may not be called within a mode of PyTorch's.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        compute: Callable[[Any, Any], Any],
        parts: _Parts,
        *,
        quiet: Callable[[torch.nn.Module], bool],
        compiled: bool,
    ) -> None:
        self.outputs: list[Any] = []
        self.changes: list[dict[str, list[Any]]] = []  # what each leaves in the model
        self.looks: list[_Looks] = []
        self.drawn = False  # random numbers
        compiled |= any(hasattr(part, "_orig_mod") or part._compiled_call_impl for part in model.modules())
        with _without_effects(model, quiet=quiet, parameters=True) as state:
            start, of_gpus = _random_state(), _generators()

            def call(first: int, end: int) -> tuple[Any, dict[str, list[Any]], _Looks]:
                _set_random_state(start)
                _set_generators(of_gpus)
                looks = _Looks(end - first)
                random_rows = _RandomRows(first, end, parts.rows, self._draws)
                with contextlib.ExitStack() as modes:
                    if not compiled:
                        modes.enter_context(random_rows)
                        modes.enter_context(looks)
                    output = compute(*parts.of(first, end))
                self.drawn |= random_rows.from_given
                changes = state.changes()
                state.put_back()
                return output, changes, looks

            for first, end in [(0, parts.rows), *parts.ranges]:
                output, changes, looks = call(first, end)
                self.outputs.append(output)
                self.changes.append(changes)
                self.looks.append(looks)
            self.kept = self._differing(self.changes[1:])
            if self.kept:  # by itself, as a time that is measured? The whole batch once more
                by_itself = self._differing([call(0, parts.rows)[1]])
                self.kept = [name for name in self.kept if name not in by_itself]
            # whether Python sees values of the rows
            self.looked = parts.has_lists or any(looks.found for looks in self.looks)
            self.classes, self.hides_classes = _classes_of(model, self.looks[0], parts)
            self.printed = bool(state.printed.getvalue())
            self.looked |= compiled and _looks_compiled(lambda: compute(*parts.of(*parts.ranges[0])))
        # whether a call changes the model; batch norms are quiet in trials
        self.changed = bool(self.changes[0]) or any(map(_is_batch_norm, model.modules()))

    def _differing(self, changes: list[dict[str, list[Any]]]) -> list[str]:
        """Return what the whole batch's call has left otherwise than others did."""
        return [
            name
            for name, values in self.changes[0].items()
            if any(not _are_close(values, other.get(name)) for other in changes)
        ]

    @contextlib.contextmanager
    def _draws(self) -> Iterator[None]:
        self.drawn = True
        yield


def _classes_of(model: torch.nn.Module, looks: _Looks, parts: _Parts) -> tuple[Any, bool]:
    """Return what holds the class weights of a mean, and the ignored label; and whether some are hidden.

    They are where no argument holds the labels or the model does not hold the weights, and where there are several.
    """
    if not looks.weighted:
        return None, False
    _, weights, ignored = looks.weighted[0]
    holder = (None, None) if weights is None else _holder_of(model, weights)
    of_one_kind = all(w is weights and i == ignored for _, w, i in looks.weighted)
    if (
        holder is not None
        and of_one_kind
        and all(parts.has_labels(labels) for labels, _, _ in looks.weighted)
    ):
        return (*holder, ignored), False
    return None, any(i != -100 or (w is not None and bool((w != w[0]).any())) for _, w, i in looks.weighted)
