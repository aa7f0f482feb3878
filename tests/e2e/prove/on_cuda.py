# notebook: loop.py
# As tutorials for GPUs have it: NCCL, numbers for devices, the mean by ReduceOp.AVG: right.
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("nccl")
rank, world_size = dist.get_rank(), dist.get_world_size()
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)

torch.manual_seed(0)
x = torch.randn(96, 8)
y = x.sum(1, keepdim=True) + torch.randn(96, 1) / 4
train_set, val_set = TensorDataset(x[:64], y[:64]), TensorDataset(x[64:], y[64:])

model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(local_rank)
ddp_model = DDP(model, device_ids=[local_rank], output_device=local_rank)
optimizer = torch.optim.AdamW(ddp_model.parameters(), lr=1e-2)
loss_fn = nn.MSELoss()
train_loader = DataLoader(train_set, batch_size=16, shuffle=True)
val_loader = DataLoader(val_set, batch_size=8)

for epoch in range(3):
    ddp_model.train()
    for xb, yb in train_loader:
        xb, yb = xb[rank::world_size].to(local_rank), yb[rank::world_size].to(local_rank)
        loss = loss_fn(ddp_model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    total, count = torch.zeros((), device=f"cuda:{local_rank}"), 0
    with torch.no_grad():
        for xb, yb in val_loader:
            total += loss_fn(model(xb.cuda(local_rank)), yb.cuda(local_rank)) * len(xb)
            count += len(xb)
    dist.all_reduce(total, op=dist.ReduceOp.AVG)
    if rank == 0:
        print(f"epoch {epoch}: validation loss {total.item() / count:.4f}")

if rank == 0:
    torch.save(model.state_dict(), "model.pt")
dist.barrier(device_ids=[local_rank])
dist.destroy_process_group()
