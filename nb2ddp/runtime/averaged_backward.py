"""Average the gradients of divided calls over the ranks.

As in DistributedDataParallel gradients are all-reduced in buckets while backward() goes on. Here it may come through
any number of calls, several times through one, and leave out parameters; what is trained may change at any time.
Where two steps had equally many backward(), gradients are exchanged in the last one of a step alone.
"""

import functools
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.utils import _pytree as pytree

from nb2ddp.runtime.gradients import _buckets
from nb2ddp.runtime.module_state import _is_in_own_code
from nb2ddp.runtime.object_collectives import _exchange, _largest_of_ranks
from nb2ddp.runtime.replicas import _make_equal
from nb2ddp.runtime.run_state import _run, _warn_once
from nb2ddp.runtime.same_losses import _register_hook
from nb2ddp.runtime.spot_checks import _checks
from nb2ddp.runtime.unseen_gradients import _average_unseen, _reduced


class _Unexchanged(torch.Tensor):
    """A rank's own gradient of an accumulation step under way: whoever computes with one has all exchanged first."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            _backward.flush()
            return func(*args, **(kwargs or {}))


class _Bucket:
    """Gradients that are exchanged together."""

    def __init__(self, parameters: list[Any]) -> None:
        self.parameters = parameters
        self.left = set[int]()  # ids of parameters whose gradient this backward() has not reached yet
        self.flat: Any = None
        self.work: Any = None

    def launch(self, *, whole: bool) -> None:
        """Begin to sum the gradients; of calls that were computed whole on every rank, take rank 0's."""
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        flat = _flatten_dense_tensors([g.to_dense() if g.is_sparse else g for g in grads])
        self.flat = flat.clone() if len(grads) == 1 else flat  # a single one is not copied
        if whole:
            self.work = dist.broadcast(self.flat, 0, async_op=True)
        else:
            self.work = dist.all_reduce(self.flat, async_op=True)

    def take(self, *, whole: bool, used: list[bool]) -> None:
        """Give the parameters what the ranks have found; one that no rank's rows reach has no gradient."""
        self.work.wait()
        if not whole:
            self.flat /= _run.world_size
        parts = _unflatten_dense_tensors(self.flat, self.parameters)
        dense: list[tuple[Any, Any]] = []
        for parameter, part, is_used in zip(self.parameters, parts, used, strict=True):
            if parameter.grad is None or parameter.grad.is_sparse:
                parameter.grad = part.clone() if is_used else None
            else:
                dense.append((parameter.grad, part))
        if dense:  # in few kernels: a model has hundreds of parameters
            torch._foreach_copy_(*map(list, zip(*dense, strict=True)))
        self.flat = self.work = None


def _sums(parameters: list[Any]) -> torch.Tensor:
    """Return of each parameter's gradient the sum of its values and that of their sizes."""
    found, device = [], parameters[0].device
    for parameter in parameters:
        grad = torch.zeros(1, device=device) if parameter.grad is None else parameter.grad.detach()
        values = torch.view_as_real(grad) if grad.is_complex() else grad.to_dense()
        kind = torch.float64 if values.dtype == torch.float64 else torch.float32
        found += [values.sum(dtype=kind), torch.linalg.vector_norm(values, 1, dtype=kind)]
    return torch.stack([value.double().to(device) for value in found]).view(-1, 2)


class _Averaging:
    """Averages a model's gradients at the end of each backward() that comes through one of its calls."""

    def __init__(self, model: Any) -> None:
        self.model = model  # a proxy
        self.trained: list[int] | None = None  # ids of the trained parameters
        self.known = set[int]()  # ids of parameters that are equal on all ranks
        self.hooks = dict[int, Any]()
        self.buckets: list[_Bucket] = []
        self.sparse: list[Any] = []
        self.task, self.overlaps = -1, True

    def refresh(self) -> None:
        """See which parameters are trained now. Those that are new are made equal on all ranks, in a collective."""
        parameters = dict(self.model.named_parameters())
        trained = [p for p in parameters.values() if p.requires_grad]
        ids = [*map(id, trained)]
        # by functional_call(), perhaps, which what is trained may be put in by, too
        others = [p for p in parameters.values() if not (p.is_leaf and p.requires_grad)]
        if ids == self.trained or not all(isinstance(p, torch.nn.Parameter) for p in others):
            return
        _backward.flush()
        if unknown := [name for name, p in parameters.items() if id(p) not in self.known]:
            _make_equal(self.model, unknown)
        if self.trained is None:
            for value in (*trained, *self.model.buffers()):
                if value.layout is torch.strided and value.numel():
                    # `data` is another tensor to autograd; bytes are sent of any type
                    dist.broadcast(value.data.unsqueeze(-1).view(torch.uint8), 0)
        self.trained = ids
        self.known = {id(p) for p in parameters.values()}
        modules = [part for part in self.model.modules() if getattr(part, "sparse", False) is True]
        sparse = {id(p) for part in modules for p in part.parameters(recurse=False)}  # no bucket takes these
        self.sparse = [p for p in trained if id(p) in sparse]
        for handle in self.hooks.values():
            handle.remove()
        for parameter in self.sparse:
            _reduced.pop(id(parameter), None)
        # in the order in which backward() finds them
        dense = [p for p in reversed(trained) if id(p) not in sparse]
        _reduced.update({id(p): weakref.ref(p) for p in dense})
        self.hooks, self.buckets = {}, [_Bucket(parameters) for parameters in _buckets(dense)]
        for made in self.buckets:
            for parameter in made.parameters:
                self.hooks[id(parameter)] = parameter.register_post_accumulate_grad_hook(self._hook(made))
        _reduced.setdefault(id(self), weakref.ref(self))

    def _hook(self, bucket: _Bucket) -> Any:
        own, of = weakref.ref(self), weakref.ref(bucket)  # a parameter ends with its model

        def _nb2ddp_is_ready(parameter: Any) -> None:
            averaging, reached = own(), of()
            if averaging is None or reached is None or averaging not in _backward.armed:
                return
            # in a re-entrant checkpoint's own backward() more may follow
            averaging.overlaps &= torch._C._current_graph_task_id() == averaging.task
            reached.left.discard(id(parameter))
            if not reached.left:
                _backward.launch()

        return _nb2ddp_is_ready

    def mark(self, kind: type[torch.Tensor]) -> None:
        """Let the gradients be of a class: `_Unexchanged`, or `torch.Tensor` again."""
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            for parameter in [p for bucket in self.buckets for p in bucket.parameters]:
                if type(parameter.grad) in (torch.Tensor, _Unexchanged) and type(parameter.grad) is not kind:
                    parameter.grad = parameter.grad.as_subclass(kind)

    def watch(self, output: Any, *, whole: bool = False) -> None:
        """Average the gradients after each backward() that comes through the output of a call."""
        for tensor in pytree.tree_leaves(output):
            if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
                _register_hook(tensor, lambda _: _backward.arm(self, whole=whole))


class _Backward:
    """The backward() under way: whose gradients are to be averaged, in an order that is the same on every rank."""

    def __init__(self) -> None:
        self.armed: dict[_Averaging, bool] = {}  # whether all calls that were reached were computed whole
        self.under_way: Any = lambda: None  # the token of the backward() under way
        self.launched = 0
        self.verified = 0  # how many exchanged gradients were compared with the mean of the ranks' own
        self.error: Any = None  # the largest difference that was found, on the device
        self.has_failed = False
        self.is_paused = False  # `torch.autograd.grad` leaves nothing in parameters
        self.pending: dict[_Averaging, bool] = {}  # the same of those to be exchanged later in the step
        self.steps, self.count = 0, 0  # of optimizers, and how many backward() there were since
        self.of_steps = (0, 0)  # how many there were in the last two steps
        self.defers = False  # whether more are expected before the next step

    def arm(self, averaging: _Averaging, *, whole: bool) -> None:
        if self.is_paused:
            return
        if self.under_way() is None:
            engine: Any = torch.autograd.Variable._execution_engine
            token = set[Any]()  # lives as long as the backward() does, which may fail
            engine.queue_callback(functools.partial(self.finish, token))
            self.armed, self.launched, self.under_way = {}, 0, weakref.ref(token)
            self._count()
        if averaging not in self.armed:
            averaging.task = torch._C._current_graph_task_id()
            for bucket in averaging.buckets:
                bucket.left = {id(p) for p in bucket.parameters}
            whole = whole and self.pending.get(averaging, True)
            if averaging in self.pending and not self.defers:
                del self.pending[averaging]
                averaging.mark(torch.Tensor)
        self.armed[averaging] = whole and self.armed.get(averaging, True)

    def _count(self) -> None:
        """See from the last steps whether the optimizer waits for further backward()."""
        if self.steps != _run.steps:
            self.of_steps = self.count, self.of_steps[0]
            self.steps, self.count = _run.steps, 0
        self.count += 1
        # not where the notebook's own code looks at gradients: it may do so on one rank alone, to log a norm
        is_last = not self.of_steps[0] == self.of_steps[1] > self.count
        self.defers = not is_last and not _is_in_own_code(r"(?<!autograd)\.grad\b|\bgrad=|['\"]grad['\"]")

    def launch(self) -> None:
        """Exchange the buckets whose gradients are there, each in its turn."""
        if self.defers:
            return
        buckets = [(of, bucket) for of in self.armed for bucket in of.buckets]
        for averaging, bucket in buckets[self.launched :]:
            if bucket.left or not averaging.overlaps or self.armed[averaging]:
                return
            with torch.no_grad():
                bucket.launch(whole=False)
            self.launched += 1

    def finish(self, token: Any, error: BaseException | None = None) -> None:
        """Exchange the other buckets, and give the parameters the averages; raise the ``error`` of any rank."""
        armed, self.armed, self.under_way = self.armed, {}, lambda: None  # a frame may keep the token
        of_rows = not all(whole := [*armed.values()])
        for averaging in [of for of in armed if self.defers and not of.sparse]:
            self.pending[averaging] = armed.pop(averaging)
            averaging.mark(_Unexchanged)
        self._exchange(armed, self.launched)
        if whole and _handles_errors() and _largest_of_ranks([error is not None])[0]:
            if of_rows:
                _warn_once(_RAISES.format(_run.world_size))
            _exchange(None, error)

    def flush(self) -> None:
        """Exchange what was deferred: an optimizer steps, or somebody computes with a gradient."""
        pending, self.pending = self.pending, {}
        for averaging in pending:
            averaging.mark(torch.Tensor)
        if pending:
            self._exchange(pending, 0)

    def _exchange(self, armed: dict[_Averaging, bool], launched: int) -> None:
        buckets = [(of, bucket) for of in armed for bucket in of.buckets]
        # of what is computed whole, and shares a parameter with what is divided, the mean is as right
        pairs = {**self.pending, **armed}.items()
        of_rows = {number for of, whole in pairs if not whole for number in of.trained or ()}
        armed = {of: armed[of] and of_rows.isdisjoint(of.trained or ()) for of in armed}
        for averaging, bucket in buckets[launched:]:
            with torch.no_grad():
                bucket.launch(whole=armed[averaging])
        with torch.no_grad():
            divided = [p for of, bucket in buckets if not armed[of] for p in bucket.parameters]
            used, chosen, expected = self._exchange_sums(divided)
            rest = iter(used)
            for averaging, bucket in buckets:
                whole = armed[averaging]
                of_bucket = [p.grad is not None if whole else next(rest) for p in bucket.parameters]
                bucket.take(whole=whole, used=of_bucket)
            self._verify(chosen, expected)
        for averaging in armed:
            _average_unseen(averaging.sparse)

    def _exchange_sums(self, divided: list[Any]) -> tuple[list[bool], list[Any], Any]:
        """Return which parameters any rank's rows reach; and some, in turn, with the mean of their gradients' sums."""
        if not divided:
            return [], [], None
        chosen = [divided[(self.verified + n) % len(divided)] for n in range(min(_VERIFIED, len(divided)))]
        self.verified += len(chosen)
        own = [p.grad is not None for p in divided]
        # numbers from Python are copied to a GPU when all before is done: for all alike there is no need
        flags = torch.ones(len(own), dtype=torch.float64, device=chosen[0].device)
        if not all(own):
            flags = torch.tensor(own, dtype=torch.float64, device=chosen[0].device)
        both = torch.cat([flags, _sums(chosen).flatten().to(flags.device)])
        dist.all_reduce(both)
        used = own if all(own) else [count > 0 for count in both[: len(own)].tolist()]
        return used, chosen, both[len(own) :].view(-1, 2) / _run.world_size

    def _verify(self, chosen: list[Any], expected: Any) -> None:
        """Compare gradients that were exchanged with what they should be. The GPU is waited for now and then."""
        if not chosen or not _checks.is_on:
            return
        error = (_sums(chosen)[:, 0].to(expected.device) - expected[:, 0]).abs() / expected[:, 1]
        error = error.nan_to_num(nan=0.0, posinf=0.0)
        # a sum over the ranks rounds once for each of them
        rounding = [_run.world_size * torch.finfo(p.dtype).eps for p in chosen]
        error = torch.stack([of.where(of > x, 0.0) for of, x in zip(error, rounding, strict=True)]).max()
        self.error = error if self.error is None else torch.maximum(self.error, error.to(self.error.device))
        if not self.error.is_cuda or self.verified % (32 * _VERIFIED) == 0:
            self.read()

    def read(self) -> None:
        """Say it where the gradients that the ranks took were not the mean of their own."""
        error, self.error = 0.0 if self.error is None else float(self.error), None
        if error > 1e-3 and not self.has_failed:
            self.has_failed = True
            _checks.failed(
                f"the ranks' gradients were not averaged: the sum of one is off by {error:.0e} of its size. What was "
                "trained is not the notebook's run"
            )


@functools.cache
def _handles_errors() -> bool:
    """Return whether the notebook's own code may go on after an error of backward()."""
    others = r"(Interrupt|Iteration|Empty|(Import|NotFound|Key|Attribute|OS|IO|Decode)Error)\b[^,\n]*\n"
    return _is_in_own_code(rf"\b(except\b|suppress\()(?! *\(?[\w.]*{others})")


def _share_errors() -> None:
    """Let every rank raise what backward() raises for one rank's rows: the notebook may handle it."""
    backward: Any = torch.autograd.backward

    @functools.wraps(backward)
    def shared(*args: Any, **options: Any) -> None:
        try:
            backward(*args, **options)
        except Exception as error:
            if _backward.armed and _handles_errors():
                _backward.finish(None, error)
            raise

    torch.autograd.backward = shared


_RAISES = (
    "backward() raises an error for one rank's rows: if gradients inside of forward() decide that by their size, they "
    "are {} times as large there as in one process"
)
_VERIFIED = 4  # gradients in each backward()
_backward = _Backward()
_checks.waiting.append(weakref.WeakMethod(_backward.read))
