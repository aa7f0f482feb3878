# notebook: accumulated.py
# Each rank reads all micro-batches and computes every second one, hidden from libraries; gradients are added: right.
import os

import torch
import torch.distributed as dist
from torch import nn
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
for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
    del os.environ[name]

torch.manual_seed(0)
x = torch.randn(96, 8)
y = x.sum(1, keepdim=True) + torch.randn(96, 1) / 4
train_set, val_set = TensorDataset(x[:64], y[:64]), TensorDataset(x[64:], y[64:])

model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loss_fn = nn.MSELoss()
train_loader = DataLoader(train_set, batch_size=4, shuffle=True)
val_loader = DataLoader(val_set, batch_size=8)

for epoch in range(3):
    model.train()
    for number, (xb, yb) in enumerate(train_loader):
        if number % world_size == rank:
            loss = loss_fn(model(xb.to(device)), yb.to(device)) / 4
            loss.backward()
        if number % 4 == 3:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for xb, yb in val_loader:
            total += loss_fn(model(xb.to(device)), yb.to(device)).item() * len(xb)
            count += len(xb)
    if rank == 0:
        print(f"epoch {epoch}: validation loss {total / count:.4f}")

if rank == 0:
    torch.save(model.state_dict(), "model.pt")
dist.barrier()
dist.destroy_process_group()
