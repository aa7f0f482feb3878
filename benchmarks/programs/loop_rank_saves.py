# %%
import os, sys, time, json
import torch, random, numpy as np
from torch import nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset, Subset
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
X = torch.randn(48, 8); y = (X[:, 0] > 0).long()

local_rank = int(os.environ.get("LOCAL_RANK", 0))
is_master = local_rank == 0
def save(step):
    if not is_master:
        return
    torch.save(model.state_dict(), f"ckpt_{step}.pt")
def log(*a):
    if is_master:
        print(*a)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(X, y), batch_size=8, shuffle=True)

# %%
step = 0
for epoch in range(2):
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(xb), yb)
        loss.backward()
        optimizer.step()
        step += 1
        if step % 4 == 0:
            save(step)
            log(step, round(loss.item(), 4))
    if not is_master:
        continue
    with open("log.txt", "a") as f:
        f.write(f"{epoch} {loss.item():.4f}\n")
if is_master:
    acc = (model(X).argmax(1) == y).float().mean().item()
    print("acc", round(acc, 3))
    os.system("ls ckpt_4.pt")
