# silent: gradient
# family=loop task=lm, all else plain
# seen: gradient are 2.9e-02 apart (norm 0.30916 against 0.31202)

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
X = torch.randint(1, 24, (48, 10))
y = X.clone()
for i in range(len(y)):
    y[i, : 1 + i % 6] = -100  # the prompt
train_ds = TensorDataset(X, y)

# %%
class TinyLM(nn.Module):
    def __init__(self, vocab_size=24, dim=16):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab_size)

    def forward(self, ids):
        hidden, _ = self.rnn(self.embedding(ids))
        return self.head(hidden)

# %%
train_loader = DataLoader(train_ds, batch_size=8, shuffle=True)

# %%
model = TinyLM()
optimizer = torch.optim.SGD(model.parameters(), lr=5 * 0.02)

# %%
for epoch in range(3):
    model.train()
    for xb, yb in train_loader:
        optimizer.zero_grad()
        out = model(xb)
        loss = F.cross_entropy(out[:, :-1].reshape(-1, 24), yb[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
    train_loss = loss.item()
    print(f"Epoch {epoch + 1}: loss {train_loss:.4f}")
