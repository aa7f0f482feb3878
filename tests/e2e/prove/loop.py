# A training loop, as a notebook has it: seeded, shuffled, evaluated after each epoch, saved.

# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(96, 8)
y = x.sum(1, keepdim=True) + torch.randn(96, 1) / 4
train_set, val_set = TensorDataset(x[:64], y[:64]), TensorDataset(x[64:], y[64:])

# %%
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loss_fn = nn.MSELoss()
train_loader = DataLoader(train_set, batch_size=16, shuffle=True)
val_loader = DataLoader(val_set, batch_size=8)

# %%
for epoch in range(3):
    model.train()
    for xb, yb in train_loader:
        xb, yb = xb.to(device), yb.to(device)
        loss = loss_fn(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for xb, yb in val_loader:
            total += loss_fn(model(xb.to(device)), yb.to(device)).item() * len(xb)
            count += len(xb)
    print(f"epoch {epoch}: validation loss {total / count:.4f}")

# %%
torch.save(model.state_dict(), "model.pt")
