"""Average the gradients of divided calls over the ranks.

As in DistributedDataParallel gradients are all-reduced in buckets while backward() goes on. Here it may come through
any number of calls, several times through one, and leave out parameters; what is trained may change at any time.
"""

import math
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from nb2ddp.runtime.gradients import _BUCKET, _sparse_names, _trained_by_name
from nb2ddp.runtime.replicas import _make_equal
from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.spot_checks import _checks
from nb2ddp.runtime.unseen_gradients import _average_unseen, _must_be_on_gpu


class _Bucket:
    """Gradients that are exchanged together."""

    def __init__(self, parameters: list[Any]) -> None:
        self.parameters = parameters
        self.left = set[int]()  # ids of parameters whose gradient this backward() has not reached yet
        self.flat: Any = None
        self.work: Any = None
        self.sums: Any = None  # of the values and of their sizes, where the exchange is to be proved

    def launch(self, *, whole: bool) -> None:
        """Begin to sum the gradients; of calls that were computed whole on every rank, take rank 0's."""
        grads = [torch.zeros_like(p) if p.grad is None else p.grad.detach() for p in self.parameters]
        self.flat = torch.cat([(g.to_dense() if g.is_sparse else g).reshape(-1) for g in grads])
        self.sums = _sums(self.flat) if _backward.proves and not whole else None
        if whole:
            self.work = dist.broadcast(self.flat, 0, async_op=True)
        else:
            self.work = dist.all_reduce(self.flat, async_op=True)

    def take(self, *, whole: bool, used: list[bool]) -> None:
        """Give the parameters what the ranks have found; one that no rank's rows reach has no gradient."""
        self.work.wait()
        if not whole:
            self.flat /= _run.world_size
        if self.sums is not None:
            _prove(self.sums, _sums(self.flat))
        parts = self.flat.split([p.numel() for p in self.parameters])
        for parameter, part, is_used in zip(self.parameters, parts, used, strict=True):
            if parameter.grad is None or parameter.grad.is_sparse:
                parameter.grad = part.view_as(parameter).clone() if is_used else None
            else:
                parameter.grad.copy_(part.view_as(parameter))
        self.flat = self.work = self.sums = None


def _sums(values: torch.Tensor) -> torch.Tensor:
    values = torch.view_as_real(values) if values.is_complex() else values
    return torch.stack([values.sum(dtype=torch.float64), values.abs().sum(dtype=torch.float64)])


def _prove(own: torch.Tensor, averaged: torch.Tensor) -> None:
    """Compare the sum of averaged gradients with the mean of the ranks' sums. A collective."""
    of_ranks = [torch.empty_like(own) for _ in range(_run.world_size)]
    dist.all_gather(of_ranks, own)
    mean, size = (torch.stack(of_ranks).sum(0) / _run.world_size).tolist()
    apart = abs(float(averaged[0]) - mean)
    if apart > 1e-3 * size and math.isfinite(size):
        _checks.failed(
            f"the ranks' gradients were not averaged: their sum is off by {apart / size:.0e} of its size. What was "
            "trained is not the notebook's run"
        )


class _Averaging:
    """Averages a model's gradients at the end of each backward() that comes through one of its calls."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = weakref.proxy(model)
        self.trained: list[int] | None = None  # ids of the trained parameters
        self.known = set[int]()  # ids of parameters that are equal on all ranks
        self.hooks = dict[int, Any]()
        self.buckets: list[_Bucket] = []
        self.sparse: list[Any] = []
        self.task, self.overlaps = -1, True

    def refresh(self) -> None:
        """See which parameters are trained now. Those that are new are made equal on all ranks, in a collective."""
        parameters = dict(self.model.named_parameters())
        ids = [id(p) for p in parameters.values() if p.requires_grad]
        put_in = not all(
            isinstance(p, torch.nn.Parameter) for p in parameters.values()
        )  # by functional_call()
        if ids == self.trained or put_in:
            return
        if self.trained is None:
            _must_be_on_gpu(self.model)
            for value in (*(p for p in parameters.values() if p.requires_grad), *self.model.buffers()):
                if (
                    value.layout is torch.strided
                    and value.numel()
                    and not (torch.cuda.is_available() > value.is_cuda)
                ):
                    dist.broadcast(value.data, 0)  # `data` is another tensor to autograd
        self.trained = ids
        if unknown := [name for name, p in parameters.items() if id(p) not in self.known]:
            _make_equal(self.model, unknown)
        self.known = {id(p) for p in parameters.values()}
        sparse = _sparse_names(self.model)
        trained = _trained_by_name(self.model)
        self.sparse = [p for name, p in trained.items() if name in sparse]
        for handle in self.hooks.values():
            handle.remove()
        self.hooks, self.buckets = {}, []
        filling: dict[Any, list[Any]] = {}
        for name, parameter in reversed(trained.items()):  # in the order in which backward() finds them
            if name in sparse:
                _run.reduced.pop(id(parameter), None)
                continue
            _run.reduced[id(parameter)] = weakref.ref(parameter)
            bucket = filling.setdefault((parameter.dtype, parameter.device), [])
            bucket.append(parameter)
            if sum(p.numel() * p.element_size() for p in bucket) >= _BUCKET:
                self.buckets.append(_Bucket(filling.pop((parameter.dtype, parameter.device))))
        self.buckets += [_Bucket(parameters) for parameters in filling.values()]
        for made in self.buckets:
            for parameter in made.parameters:
                self.hooks[id(parameter)] = parameter.register_post_accumulate_grad_hook(self._hook(made))
        _run.reduced.setdefault(id(self), weakref.ref(self))

    def _hook(self, bucket: _Bucket) -> Any:
        def _nb2ddp_is_ready(parameter: Any) -> None:
            if self not in _backward.armed:
                return
            if torch._C._current_graph_task_id() != self.task:  # a re-entrant checkpoint's: more may follow
                self.overlaps = False
            bucket.left.discard(id(parameter))
            _backward.launch()

        return _nb2ddp_is_ready

    def watch(self, output: Any, *, whole: bool) -> None:
        """Average the gradients after each backward() that comes through the output of a call."""
        for tensor in pytree.tree_leaves(output):
            if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
                tensor.register_hook(lambda _: _backward.arm(self, whole=whole))


class _Backward:
    """The backward() under way: whose gradients are to be averaged, in an order that is the same on every rank."""

    def __init__(self) -> None:
        self.armed: dict[_Averaging, bool] = {}  # whether all calls that were reached were computed whole
        self.launched = 0
        self.proves = False  # the exchange of the next backward() is to be proved
        self.asks = False  # `torch.autograd.grad` leaves nothing in parameters

    def arm(self, averaging: _Averaging, *, whole: bool) -> None:
        if self.asks:
            return
        if not self.armed:
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self.finish)
            self.launched = 0
        if averaging not in self.armed:
            averaging.task = torch._C._current_graph_task_id()
            for bucket in averaging.buckets:
                bucket.left = {id(p) for p in bucket.parameters}
        self.armed[averaging] = whole and self.armed.get(averaging, True)

    def _buckets(self) -> list[tuple[_Averaging, _Bucket]]:
        return [(of, bucket) for of in self.armed for bucket in of.buckets]

    def launch(self) -> None:
        """Exchange the buckets whose gradients are there, each in its turn."""
        for averaging, bucket in self._buckets()[self.launched :]:
            if bucket.left or not averaging.overlaps or self.armed[averaging]:
                return
            with torch.no_grad():
                bucket.launch(whole=False)
            self.launched += 1

    def finish(self) -> None:
        """Exchange the other buckets, and give the parameters the averages."""
        buckets, armed = self._buckets(), self.armed
        for averaging, bucket in buckets[self.launched :]:
            with torch.no_grad():
                bucket.launch(whole=armed[averaging])
        self.armed = {}
        with torch.no_grad():
            own = [p.grad is not None for of, bucket in buckets for p in bucket.parameters if not armed[of]]
            used = own
            if own:
                device = next(bucket.flat.device for of, bucket in buckets if not armed[of])
                on_ranks = torch.tensor(own, dtype=torch.int32, device=device)
                dist.all_reduce(on_ranks, dist.ReduceOp.MAX)
                used = own if all(own) else [bool(is_used) for is_used in on_ranks.tolist()]
            rest = iter(used)
            for averaging, bucket in buckets:
                whole = armed[averaging]
                of_bucket = [p.grad is not None if whole else next(rest) for p in bucket.parameters]
                bucket.take(whole=whole, used=of_bucket)
        for averaging in armed:
            _average_unseen(averaging.sparse)
        self.proves = False


_backward = _Backward()
