# silent: print
# family=loop metric=f1, all else plain
# seen: 'Epoch 1: loss 1.1223 metric 0.1765' against 'Epoch 1: loss 1.1223 metric 0.1333'

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
train_loader = DataLoader(train_ds, batch_size=8, shuffle=True)

# %%
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=5 * 0.02)

# %%
for epoch in range(3):
    model.train()
    tp = fp = fn = 0
    for xb, yb in train_loader:
        optimizer.zero_grad()
        out = model(xb)
        loss = F.cross_entropy(out, yb)
        loss.backward()
        optimizer.step()
        preds = out.argmax(-1)
        tp += ((preds == 1) & (yb == 1)).sum().item()
        fp += ((preds == 1) & (yb != 1)).sum().item()
        fn += ((preds != 1) & (yb == 1)).sum().item()
    train_loss = loss.item()
    train_metric = 2 * tp / max(2 * tp + fp + fn, 1)
    print(f"Epoch {epoch + 1}: loss {train_loss:.4f} metric {train_metric:.4f}")
