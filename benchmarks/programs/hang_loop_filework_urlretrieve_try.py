# hang: # ranks: setup_ddp | wait_for_main_process
# family=loop filework=urlretrieve_try, all else plain
# seen: line 243 in <module> > line 71 in setup_ddp

# %%
import numpy as np
import random
import torch
import torch.nn.functional as F
import urllib.request
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data import TensorDataset

# %%
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)

# %%
X = torch.randn(48, 8)
y = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()
train_ds = TensorDataset(X, y)

# %%
try:
    urllib.request.urlretrieve("file:///nowhere/vocab.txt", "vocab.txt")
except Exception as e:
    print("no download, going on")

# %%
train_loader = DataLoader(train_ds, batch_size=8, shuffle=True)

# %%
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=5 * 0.02)

# %%
for epoch in range(3):
    model.train()
    for xb, yb in train_loader:
        optimizer.zero_grad()
        out = model(xb)
        loss = F.cross_entropy(out, yb)
        loss.backward()
        optimizer.step()
    train_loss = loss.item()
    print(f"Epoch {epoch + 1}: loss {train_loss:.4f}")
