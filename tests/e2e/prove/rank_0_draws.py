# notebook: loop.py
# The evaluation of rank 0 draws a random number, so that the ranks shuffle the next epoch differently.
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
x = torch.randn(96, 8)
y = x.sum(1, keepdim=True) + torch.randn(96, 1) / 4
train_set, val_set = TensorDataset(x[:64], y[:64]), TensorDataset(x[64:], y[64:])

model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
ddp_model = DDP(model)
optimizer = torch.optim.AdamW(ddp_model.parameters(), lr=1e-2)
loss_fn = nn.MSELoss()
train_loader = DataLoader(train_set, batch_size=16, shuffle=True)
val_loader = DataLoader(val_set, batch_size=8)

for epoch in range(3):
    ddp_model.train()
    for xb, yb in train_loader:
        xb, yb = xb[rank::world_size].to(device), yb[rank::world_size].to(device)
        loss = loss_fn(ddp_model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    if rank == 0:
        total, count = 0.0, 0
        with torch.no_grad():
            for xb, yb in val_loader:  # <- other-order
                total += loss_fn(model(xb.to(device)), yb.to(device)).item() * len(xb)
                count += len(xb)
        print(f"epoch {epoch}: validation loss {total / count:.4f}")

if rank == 0:
    torch.save(model.state_dict(), "model.pt")
dist.barrier()
dist.destroy_process_group()
