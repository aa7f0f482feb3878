"""small_loop.ipynb as a training script for several GPUs, made by nb2ddp.

    torchrun --standalone --nproc_per_node=2 train_ddp.py

runs one process per GPU and trains as the notebook does: same effective batch, same losses.
Under plain `python train_ddp.py` it is one process, like the notebook.
"""
# ---- nb2ddp: one process per GPU; torchrun tells each one which it is ----
import atexit
import hashlib
import os
import sys
import time
from datetime import timedelta

rank = int(os.environ.get("RANK", 0))
local_rank = int(os.environ.get("LOCAL_RANK", 0))
world_size = int(os.environ.get("WORLD_SIZE", 1))
is_main_process = rank == 0

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

if torch.cuda.is_available():
    torch.cuda.set_device(local_rank)  # from here on, "cuda" means this process's own GPU
elif world_size > 1:
    os.environ.setdefault("ACCELERATE_USE_CPU", "true")  # else each Trainer takes itself for the only one
if not is_main_process:
    sys.stdout = open(os.devnull, "w")  # everything is printed once; errors still reach stderr


def end_on_error(kind, error, trace):
    """Show the traceback and end this process at once: a teardown could wait for the other ranks for ever."""
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    sys.stderr = sys.__stderr__  # the process group swaps it for a buffer, which would be lost here
    sys.__excepthook__(kind, error, trace)
    try:
        raise error.with_traceback(trace)
    except BaseException:
        get_error_handler().record_exception(error)  # for torchrun's own report of the first failure
    sys.stdout.flush()
    os._exit(1)


if world_size > 1:
    sys.excepthook = end_on_error


def leave_ddp():
    """Leave the process group, and let gloo's threads drop their last tensors.

    They need the interpreter for that: in its teardown they would abort this process, or hang it for ever.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
        time.sleep(0.2)


def setup_ddp():
    """Join the process group. Once the model is loaded: Unsloth compiles while it loads."""
    if world_size == 1:
        return
    if not dist.is_initialized():
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, timeout=timedelta(hours=1))
    atexit.register(leave_ddp)  # after sys.exit() too


def weigh_loss(module, args, kwargs, output):
    """A rank's loss is the mean over its share: it counts as much as there are labels in that share."""
    labels, loss = kwargs.get("labels"), getattr(output, "loss", None)
    if isinstance(labels, torch.Tensor) and isinstance(loss, torch.Tensor):
        shifted = getattr(module.module, "loss_type", None) == "ForCausalLM"
        count = (labels[..., 1:] if shifted else labels).ne(-100).sum()
        total = count.clone()
        dist.all_reduce(total)
        # a share without labels has a mean of 0 / 0
        output.loss = torch.where(count > 0, loss * (count * world_size / total), torch.zeros_like(loss))


def wrap_ddp(model, find_unused=None, weigh=True):
    """One DDP wrapper around the model: backward() averages its gradients over all ranks."""
    if world_size == 1:
        return model
    device_ids = [local_rank] if torch.cuda.is_available() else None
    if find_unused is None:  # a step may leave out a tower for images or sound; elsewhere the search would cost time
        trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        find_unused = any(word in name for name in trained for word in ("vision", "visual", "image", "audio"))
    # gradient_as_bucket_view: gradients are exchanged where they lie, not in copies
    ddp_model = DDP(
        model, device_ids=device_ids, find_unused_parameters=find_unused, gradient_as_bucket_view=True
    )
    # a batch norm alone changes its buffers; for others every forward() would wait for rank 0's in vain
    ddp_model.broadcast_buffers = any(getattr(module, "track_running_stats", False) for module in model.modules())
    if weigh:
        ddp_model.register_forward_hook(weigh_loss, with_kwargs=True)
    return ddp_model


class RankBatches:
    """The notebook's batches in the notebook's order, which rank 0 draws; this rank's share of each."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        epoch = [list(self.batches) if is_main_process else None]
        dist.broadcast_object_list(epoch)
        for batch in epoch[0]:
            # fewer samples than ranks: the same sample on several ranks has the same mean gradient
            yield batch[rank::world_size] or batch[:1]


def share_batches(loader):
    """A DataLoader that gives this rank its share of every batch: the effective batch stays the notebook's."""
    if world_size == 1:
        return loader
    if loader.batch_sampler is None or not hasattr(loader.dataset, "__getitem__"):
        raise TypeError("a DataLoader over a stream has no batches that can be shared out by index")
    options = ("collate_fn", "num_workers", "pin_memory", "timeout", "worker_init_fn", "persistent_workers")
    options = {name: getattr(loader, name) for name in options}
    return torch.utils.data.DataLoader(loader.dataset, batch_sampler=RankBatches(loader.batch_sampler), **options)


def mean_over_ranks(value):
    """The mean of a loss over all ranks, for reports: each rank saw its share of the batch."""
    if world_size == 1:
        return value
    mean = torch.as_tensor(value).detach().clone()
    if torch.cuda.is_available():
        mean = mean.cuda()
    dist.all_reduce(mean)
    mean = mean / world_size
    return mean if isinstance(value, torch.Tensor) else mean.item()


def check_replicas(model):
    """Compare the trained parameters of all ranks, bit for bit; a rank on its own would spoil the result."""
    if world_size == 1:
        return
    digests = {
        name: hashlib.sha256(parameter.detach().cpu().reshape(-1).view(torch.uint8).numpy()).hexdigest()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    of_all_ranks = [None] * world_size
    dist.all_gather_object(of_all_ranks, digests)
    for name in digests:
        if any(other.get(name) != digests[name] for other in of_all_ranks):
            raise RuntimeError(f"the ranks have trained different models: {name} is not the same on all of them")


def finish_ddp():
    """Leave the process group and go on with rank 0 alone: nothing below needs another rank."""
    global world_size
    if world_size == 1:
        return
    leave_ddp()
    if not is_main_process:
        sys.stderr.flush()
        os._exit(0)  # no interpreter teardown: if it crashed, torchrun would kill rank 0 while it saves
    world_size = 1
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):  # what rank 0 loads or starts from now on is on its own
        os.environ.pop(name, None)


# ---- cell 1 ----------------------------------------------------------------------------
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
setup_ddp()  # nb2ddp: join the process group

# ---- cell 2 ----------------------------------------------------------------------------
from torch.utils.data import DataLoader, TensorDataset
x = torch.randn(48, 6)
loader = share_batches(DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=8, shuffle=True))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

# ---- cell 3 ----------------------------------------------------------------------------
ddp_model = wrap_ddp(model)  # nb2ddp: `model` itself stays as it is
for epoch in range(2):
    for rows, labels in loader:
        loss = nn.functional.cross_entropy(ddp_model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {mean_over_ranks(loss).item():.6f}")
check_replicas(ddp_model)
finish_ddp()  # nb2ddp: below this line there is rank 0 alone

# ---- cell 4 ----------------------------------------------------------------------------
torch.save(model.state_dict(), 'model.pt')
