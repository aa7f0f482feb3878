"""Know the random states that one process has at the beginning of each micro-batch of a step.

A generator's state after a micro-batch is the one before it, advanced by as many numbers as were drawn: by dropout,
masks or noise. That depends on the micro-batch's shapes and is measured, so that a rank can go on from where those
of other ranks will leave off. Where another number was drawn than expected, the step is computed again.
"""

from collections.abc import Mapping
from typing import Any

import torch

from nb2ddp.runtime.random_numbers import _random_state, _seed_all

_Counts = tuple[int, ...]  # numbers drawn from Python's generator, NumPy's, PyTorch's, and the GPU's
_NOTHING: _Counts = (0, 0, 0, 0)
_WORDS = 624  # of a Mersenne Twister's state
# PyTorch's state (aten/src/ATen/CPUGeneratorImpl.cpp), in 8 bytes each: its seed; how many words are left, and whether
# it is seeded; the place of the next word; the words; three numbers of which one may be the next normal number
_LEFT, _NEXT, _FIRST = slice(8, 12), 2, 3
_NORMAL = 8 * (_FIRST + _WORDS)  # in bytes
_MOST_SHAPES = 64
_MOST_DRAWS = 1 << 24  # of one micro-batch, on the CPU
_MOST_WRONG = 8  # steps that may be computed again, and one of fifty more


class _Draws:
    """How many random numbers micro-batches draw, by their shapes."""

    def __init__(self) -> None:
        self.known: dict[Any, _Counts] = {}  # those seen last
        self.draws = False  # whether any has drawn a number
        self.wrong = 0  # steps that were computed again
        self.why_not = ""  # why the states are not those of one process

    def states(self, samples: list[Any], start: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Return the random states before each micro-batch of a step, and those after the last one."""
        found = [start]
        for number, inputs in enumerate(samples, 1):
            if self.why_not:
                _seed_for(start, number)  # alike on every rank, and different for other numbers
                found.append(_random_state())
            else:
                found.append(_advanced(found[-1], self.expected(inputs)))
        return found

    def expected(self, inputs: Any) -> _Counts:
        """Return what a micro-batch draws, as far as those seen so far tell."""
        shapes = _shapes(inputs)
        if shapes in self.known or not self.draws:
            return self.known.get(shapes, _NOTHING)
        nearest = min(self.known, key=lambda of: abs(_size(of) - _size(shapes)))
        return self._fitted(shapes) or self.known[nearest]

    def _fitted(self, shapes: Any) -> _Counts | None:
        """Return what follows from sizes, and from sizes times lengths, if all that was seen does."""
        import numpy

        for crosses in (False, True):
            wanted = _features(shapes, crosses=crosses)
            seen = [(_features(of, crosses=crosses), counts) for of, counts in self.known.items()]
            if any(len(features) != len(wanted) for features, _ in seen):
                continue
            table, counts = (numpy.array(column, dtype=float) for column in zip(*seen, strict=True))
            solved = numpy.linalg.lstsq(table, counts)[0]
            if abs(table @ solved - counts).max() <= 0.4:
                return tuple(map(int, (numpy.array(wanted) @ solved).round().clip(0)))
        return None

    def learn(self, samples: list[Any], drawn: list[_Counts | None], step: int) -> bool:
        """Note what the micro-batches of a step have drawn; return whether that was as expected, but of the last."""
        if self.why_not:
            return True
        expected: list[_Counts | None] = [self.expected(inputs) for inputs in samples]
        for inputs, counts in zip(samples, drawn, strict=True):
            if counts is None:
                self.why_not = "in numbers that cannot be counted"
            else:
                self.known[_shapes(inputs)] = counts
                self.draws |= counts != _NOTHING
        for old in [*self.known][:-_MOST_SHAPES]:  # what is expected of new ones is computed from all
            del self.known[old]
        if expected[:-1] == drawn[:-1]:
            return True
        self.wrong += 1
        if self.wrong > _MOST_WRONG + step // 50:
            self.why_not = "in numbers that cannot be known before"
        return False


def _shapes(inputs: Any, name: str = "") -> tuple[Any, ...]:
    """Return the shapes of all tensors in a micro-batch, with what leads to them."""
    if isinstance(inputs, torch.Tensor):
        return ((name, tuple(inputs.shape)),)
    is_list = isinstance(inputs, list | tuple) and not isinstance((*inputs, 0)[0], str | int | float)
    items = inputs.items() if isinstance(inputs, Mapping) else enumerate(inputs if is_list else ())
    return tuple(shape for key, value in items for shape in _shapes(value, f"{name} {key}"))


def _size(shapes: Any) -> int:
    return sum(torch.Size(shape).numel() for _, shape in shapes)


def _features(shapes: Any, *, crosses: bool) -> list[int]:
    """Return what numbers of draws grow with: sizes of tensors, these times their lengths, or times all lengths.

    Attention draws for each token and each other one; in a model with encoder and decoder for those of both.
    """
    found, seen = [1], [shape for _, shape in dict.fromkeys(shapes) if shape]
    for shape in seen:
        found += [torch.Size(shape).numel(), torch.Size(shape).numel() * shape[-1]]
        found += [torch.Size(shape).numel() * other[-1] for other in seen if crosses]
    return found


def _drawn(before: tuple[Any, ...], after: tuple[Any, ...]) -> _Counts | None:
    """Return how many numbers lie between two random states; None where that cannot be told."""
    pairs = zip(_twisters(before), _twisters(after), strict=True)
    counts = [count for one, other in pairs if (count := _distance_of(one, other)) is not None]
    if len(counts) < 3:
        return None
    gpu = 0
    if before[3] is not None and after[3] is not None:
        states = [state.view(torch.int64).tolist() for state in (before[3], after[3])]
        seeds, offsets = zip(*states, strict=True)
        if seeds[0] != seeds[1] or offsets[1] < offsets[0]:
            return None
        gpu = offsets[1] - offsets[0]
    return (*counts, gpu)


def _advanced(state: tuple[Any, ...], counts: _Counts) -> tuple[Any, ...]:
    """Return the random states after so many numbers."""
    if counts == _NOTHING:
        return state
    (python, of_numpy, of_torch, gpu), moved = state, []
    for (words, place, _), count in zip(_twisters(state), counts[:3], strict=True):
        generator = _generator(words, place)
        generator.bytes(4 * count)
        moved.append(generator.get_state()[1:3] if count else None)
    if moved[0] is not None:
        words, place = moved[0]
        python = (python[0], (*words.tolist(), place), *python[2:])
    if moved[1] is not None:
        words, place = moved[1]
        of_numpy = (of_numpy[0], words.tobytes(), place, *of_numpy[3:])
    if moved[2] is not None:
        words, place = moved[2]
        whole = (of_torch := of_torch.clone()).view(torch.int64)
        whole[_FIRST : _FIRST + _WORDS] = torch.from_numpy(words.astype("int64"))
        whole[_NEXT] = place
        of_torch[_LEFT].view(torch.int32)[0] = _WORDS + 1 - place  # until it makes new words
    if counts[3]:
        gpu = gpu.clone()
        gpu.view(torch.int64)[1] += counts[3]
    return python, of_numpy, of_torch, gpu


def _twisters(state: tuple[Any, ...]) -> list[tuple[Any, int, Any]]:
    """Return the words of the three generators on the CPU, which are of one kind; the place; what is held back."""
    import numpy

    python, of_numpy, of_torch, _ = state
    whole = of_torch.view(torch.int64)
    words = whole[_FIRST : _FIRST + _WORDS].numpy().astype("uint32")
    place = _WORDS if of_torch[_LEFT].view(torch.int32)[0] == 1 else int(whole[_NEXT])
    held = bool(of_torch[_NORMAL + 24]), bool(of_torch[-4])  # a second normal number, of either precision
    return [
        (numpy.array(python[1][:_WORDS], dtype="uint32"), python[1][_WORDS], python[2:]),
        (numpy.frombuffer(of_numpy[1], dtype="uint32"), of_numpy[2], of_numpy[3] and of_numpy[4]),
        (words, place, any(held) and bytes(of_torch[_NORMAL:].tolist())),
    ]


def _distance_of(one: tuple[Any, int, Any], other: tuple[Any, int, Any]) -> int | None:
    (words, place, held), (wanted, end, held_after) = one, other
    if held != held_after:
        return None
    if (words == wanted).all() and place <= end:
        return end - place
    count, generator = _WORDS - place, _generator(words, _WORDS)
    while count < _MOST_DRAWS:
        generator.bytes(4 * _WORDS)
        if (generator.get_state()[1] == wanted).all():
            return count + end
        count += _WORDS
    return None


def _generator(words: Any, place: int) -> Any:
    import numpy

    generator = numpy.random.RandomState(0)
    generator.set_state(("MT19937", words, place, 0, 0.0))
    return generator


def _seed_for(state: tuple[Any, ...], number: int) -> None:
    """Seed all generators by a state and a number: alike on every rank, and different for other numbers."""
    gpu = 0 if state[3] is None else int(state[3].view(torch.int64).sum())
    own = int(state[2].view(torch.int64).sum()) + gpu
    _seed_all((own * 1_000_003 + number * 7919) % 2**31)
