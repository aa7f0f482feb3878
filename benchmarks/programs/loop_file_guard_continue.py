# %%
import os
import random
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
with open("a.tmp", "w") as f:
    f.write("x")
X = torch.randn(40, 8)
y = (X[:, 0] > 0).long()
loader = DataLoader(TensorDataset(X, y), batch_size=8)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
# %%
for name in ["a.tmp", "b.tmp", "a.tmp"]:
    if os.path.exists(name):
        os.remove(name)
        continue
    with open(name, "w") as f:
        f.write("made")
    print("made", name)
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(xb), yb)
        loss.backward()
        optimizer.step()
    print(f"{loss.item():.4f}")
