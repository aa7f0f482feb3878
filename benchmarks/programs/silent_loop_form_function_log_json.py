# silent: file
# family=loop form=function log=json, all else plain
# seen: 'Epoch 1: loss 1.1223' against 'Epoch 1: loss 1.1563'

# %%
import json
import numpy as np
import random
import torch
import torch.nn.functional as F
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
train_loader = DataLoader(train_ds, batch_size=8, shuffle=True)

# %%
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=5 * 0.02)

# %%
def train_one_epoch(model, loader, optimizer, epoch):
    model.train()
    for xb, yb in loader:
        optimizer.zero_grad()
        out = model(xb)
        loss = F.cross_entropy(out, yb)
        loss.backward()
        optimizer.step()
    train_loss = loss.item()
    return train_loss


# %%
history = []
for epoch in range(3):
    train_loss = train_one_epoch(model, train_loader, optimizer, epoch)
    print(f"Epoch {epoch + 1}: loss {train_loss:.4f}")
    history.append(train_loss)

# %%
with open("history.json", "w") as fh:
    json.dump(history, fh)
