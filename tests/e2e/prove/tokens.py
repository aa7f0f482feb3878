# A loop whose loss is a mean over the tokens of a batch that count; rows have unequal lengths.

# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
lengths = torch.randint(3, 13, (64,))
tokens = torch.randint(1, 50, (64, 12))
tokens[torch.arange(12)[None] >= lengths[:, None]] = 0
labels = tokens.roll(-1, 1)
labels[:, -1] = 0
train_set = TensorDataset(tokens, labels)

# %%
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
loss_fn = nn.CrossEntropyLoss(ignore_index=0)
train_loader = DataLoader(train_set, batch_size=16, shuffle=True)

# %%
for _ in range(2):
    for xb, yb in train_loader:
        loss = loss_fn(model(xb.to(device)).flatten(0, 1), yb.to(device).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

# %%
torch.save(model.state_dict(), "model.pt")
