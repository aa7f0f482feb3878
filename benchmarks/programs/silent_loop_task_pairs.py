# silent: gradient
# family=loop task=pairs, all else plain
# seen: gradient are 7.3e-01 apart (norm 2.2213 against 1.2826)

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
y = X + 0.1 * torch.randn(X.shape)
train_ds = TensorDataset(X, y)

# %%
train_loader = DataLoader(train_ds, batch_size=8, shuffle=True)

# %%
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=5 * 0.02)

# %%
for epoch in range(3):
    model.train()
    for xb, yb in train_loader:
        optimizer.zero_grad()
        za, zb = F.normalize(model(xb)), F.normalize(model(yb))
        scores = za @ zb.T / 0.1
        loss = F.cross_entropy(scores, torch.arange(len(scores)))
        loss.backward()
        optimizer.step()
    train_loss = loss.item()
    print(f"Epoch {epoch + 1}: loss {train_loss:.4f}")
