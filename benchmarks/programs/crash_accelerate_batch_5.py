# crash: ValueError: To use a `DataLoader` in `split_batches` mode, the batch size (#) needs to be a round mu
# family=accelerate batch=5, all else plain
# seen: ValueError: To use a `DataLoader` in `split_batches` mode, the batch size (5) needs to be 

# %%
import numpy as np
import random
import torch
import torch.nn.functional as F
from accelerate import Accelerator
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
train_loader = DataLoader(train_ds, batch_size=5)

# %%
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=5 * 0.02)
accelerator = Accelerator()
model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)

# %%
for epoch in range(3):
    model.train()
    for xb, yb in train_loader:
        optimizer.zero_grad()
        out = model(xb)
        loss = F.cross_entropy(out, yb)
        accelerator.backward(loss)
        optimizer.step()
    train_loss = loss.item()
    print(f"Epoch {epoch + 1}: loss {train_loss:.4f}")
