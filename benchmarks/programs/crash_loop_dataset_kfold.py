# crash: NameError: name 'model' is not defined
# family=loop dataset=kfold, all else plain
# seen: NameError: name 'model' is not defined

# %%
import numpy as np
import random
import torch
import torch.nn.functional as F
from sklearn.model_selection import KFold
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data import Subset
from torch.utils.data import TensorDataset

# %%
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)

# %%
X = torch.randn(48, 8)
y = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()

# %%
dataset = TensorDataset(X, y)
kf = KFold(n_splits=3, shuffle=True, random_state=0)
scores = []
for fold, (train_idx, val_idx) in enumerate(kf.split(X)):
    print("fold", fold)
    train_ds = Subset(dataset, train_idx.tolist())
    train_loader = DataLoader(train_ds, batch_size=8, shuffle=True)
    val_loader = DataLoader(Subset(dataset, val_idx.tolist()), batch_size=4)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=5 * 0.02)
    for epoch in range(2):
        model.train()
        for xb, yb in train_loader:
            optimizer.zero_grad()
            out = model(xb)
            loss = F.cross_entropy(out, yb)
            loss.backward()
            optimizer.step()
        train_loss = loss.item()
        print(f"Epoch {epoch + 1}: loss {train_loss:.4f}")
    scores.append(train_loss)
print(f"mean {sum(scores) / len(scores):.4f}")
