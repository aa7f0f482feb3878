# silent: gradient
# family=loop batch=5, all else plain
# seen: gradient are 9.1e-02 apart (norm 0.91832 against 1.0106)

# %%
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
train_loader = DataLoader(train_ds, batch_size=5, shuffle=True)

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
