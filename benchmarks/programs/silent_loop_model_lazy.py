# silent: gradient
# family=loop model=lazy, all else plain
# seen: gradient are 8.2e-01 apart (norm 1.1881 against 1.0984)

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
class Net(nn.Module):
    def __init__(self, n_features=8, hidden=16):
        super().__init__()
        self.fc1 = nn.Sequential(nn.Linear(n_features, hidden), nn.LazyBatchNorm1d(), nn.Identity())
        self.out = nn.Linear(hidden, 3)

    def forward(self, x):
        h = self.fc1(x)
        return self.out(torch.relu(h))

# %%
train_loader = DataLoader(train_ds, batch_size=8, shuffle=True)

# %%
model = Net()
model(torch.zeros(2, 8))  # lazy layers
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
