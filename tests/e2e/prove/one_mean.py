# notebook: tokens.py
# One mean over the tokens of all ranks: right.
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def setup():
    dist.init_process_group(backend="nccl" if torch.cuda.is_available() else "gloo")
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    device = torch.device("cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        device = torch.device("cuda", local_rank)
    return rank, dist.get_world_size(), device


rank, world_size, device = setup()

torch.manual_seed(0)
lengths = torch.randint(3, 13, (64,))
tokens = torch.randint(1, 50, (64, 12))
tokens[torch.arange(12)[None] >= lengths[:, None]] = 0
labels = tokens.roll(-1, 1)
labels[:, -1] = 0
train_set = TensorDataset(tokens, labels)

model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50)).to(device)
ddp_model = DDP(model)
optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.5)
loss_fn = nn.CrossEntropyLoss(ignore_index=0, reduction="sum")
train_loader = DataLoader(train_set, batch_size=16, shuffle=True)

for _ in range(2):
    for xb, yb in train_loader:
        xb, yb = xb[rank::world_size].to(device), yb[rank::world_size].to(device)
        count = (yb != 0).sum()
        dist.all_reduce(count)
        loss = loss_fn(ddp_model(xb).flatten(0, 1), yb.flatten()) * world_size / count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

if rank == 0:
    torch.save(model.state_dict(), "model.pt")
dist.barrier()
dist.destroy_process_group()
