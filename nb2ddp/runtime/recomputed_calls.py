"""Compute a call as one process does, and this rank's part of it, without effects: their outputs are compared."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nb2ddp.runtime.batch_parts import _Parts
from nb2ddp.runtime.call_results import _are_close, _computes_in_16_bits
from nb2ddp.runtime.gradients import _average, _buckets
from nb2ddp.runtime.module_state import _is_batch_norm, _without_effects
from nb2ddp.runtime.object_collectives import from_all_ranks
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.random_rows import _generators, _RandomRows, _set_generators
from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.value_reads import _Reads


class _Trial:
    """What one call gives, and what it leaves in the model."""

    def __init__(self, rows: int) -> None:
        self.output: Any = None
        self.error: BaseException | None = None
        self.changes: dict[str, list[Any]] = {}
        self.reads = _Reads(rows)
        self.drawn = self.from_given = False  # random numbers; from a generator that the notebook gives
        self.in_16_bits = False


class _Trials:
    """Calls that all start from the same state of the model and the same random numbers, which are put back.

    They have a graph, as the notebook's own call has. Within ``compiled`` models no mode of PyTorch's is used.
    """

    def __init__(
        self, model: torch.nn.Module, *, quiet: Callable[[torch.nn.Module], bool], compiled: bool
    ) -> None:
        self.model, self.compiled = model, compiled
        self.effects = _without_effects(model, quiet=quiet, parameters=True, graph=True)

    def __enter__(self) -> "_Trials":
        self.state = self.effects.__enter__()
        self.start, self.of_gpus = _random_state(), _generators()
        return self

    def __exit__(self, *error: Any) -> None:
        self.effects.__exit__(*error)

    @property
    def printed(self) -> bool:
        return bool(self.state.printed.getvalue())

    def call(self, compute: Callable[[], Any], parts: _Parts, start: int, end: int) -> _Trial:
        """Return what a call gives for some rows of a batch; an error is one of its results."""
        trial = _Trial(end - start)

        @contextlib.contextmanager
        def draws() -> Iterator[None]:
            trial.drawn = True
            yield

        _set_random_state(self.start)
        _set_generators(self.of_gpus)
        rows = _RandomRows(start, end, parts.rows, draws, everywhere=True)
        try:
            with contextlib.ExitStack() as modes:
                if self.compiled and hasattr(torch.compiler, "set_stance"):
                    modes.enter_context(torch.compiler.set_stance("force_eager"))
                modes.enter_context(rows)
                modes.enter_context(trial.reads)
                trial.output = compute()
        except Exception as error:
            trial.error = error
        trial.from_given = rows.from_given
        trial.changes = self.state.changes()
        trial.in_16_bits = _computes_in_16_bits(self.model, trial.output)
        self.state.put_back()
        return trial


def _left_differently(model: torch.nn.Module, one: _Trial, other: _Trial) -> list[str]:
    """Return what of the model two calls have left differently; a batch norm that is synchronised counts other rows."""
    norms = tuple(f"{name}." for name, part in model.named_modules() if _is_batch_norm(part))
    return [
        name
        for name in {**one.changes, **other.changes}
        if not (norms and name.startswith(norms))
        and not _are_close(one.changes.get(name, []), other.changes.get(name))
    ]


def _without_graph(output: Any) -> Any:
    return pytree.tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, output)


def _gradients(output: Any, parameters: list[Any]) -> list[Any] | None:
    """Return a gradient of parameters behind the outputs of a call, weighted alike on every rank; None for none."""
    grad: Any = getattr(torch.autograd.grad, "__wrapped__", torch.autograd.grad)
    of = [x for x in pytree.tree_leaves(output) if isinstance(x, torch.Tensor) and x.requires_grad]
    drawn = torch.Generator().manual_seed(0)
    weights = [torch.randn(x.shape, generator=drawn, dtype=torch.float64).to(x) for x in of]
    if not of or not parameters:
        return None
    found = grad(of, parameters, weights, allow_unused=True)
    return [
        torch.zeros_like(p) if g is None else g.detach().to_dense()
        for p, g in zip(parameters, found, strict=True)
    ]


def _gradients_apart(
    trials: _Trials,
    compute: Callable[[_Parts, int, int], Callable[[], Any]],
    join: Callable[[Any, _Parts], Any],
    parts: _Parts,
    parameters: dict[str, Any],
) -> tuple[float, str] | None:
    """Return how far the mean of the ranks' gradients is from that of a whole batch, relative to the largest value.

    Also the name of the parameter where it is the farthest. None where they cannot be had: a re-entrant checkpoint
    gives none. A collective.
    """
    own = parts.ranges[_run.rank]
    values = list(parameters.values())
    whole = trials.call(compute(parts, 0, parts.rows), parts, 0, parts.rows)
    expected = error = None
    try:
        expected = _gradients(whole.output, values)
    except RuntimeError as found:
        error = found
    whole.output = None
    part = trials.call(compute(parts, *own), parts, *own)
    if any(from_all_ranks(bool(whole.error or part.error or error or expected is None))):
        return None
    found_of_rank: list[Any] | None = None
    with contextlib.suppress(RuntimeError):
        found_of_rank = _gradients(join(part.output, parts), values)
    if any(from_all_ranks(found_of_rank is None)):
        return None
    assert found_of_rank is not None
    assert expected is not None
    for bucket in _buckets(found_of_rank):
        _average(bucket)
    most = max(float(x.abs().max()) if x.numel() else 0.0 for x in expected)
    apart = [
        float((x - y).abs().max().nan_to_num(nan=0.0)) if x.numel() else 0.0
        for x, y in zip(expected, found_of_rank, strict=True)
    ]
    if not (most < float("inf") and most > 0):  # overflowed, or there is no gradient
        return 0.0, ""
    return max(apart) / most, list(parameters)[apart.index(max(apart))]
