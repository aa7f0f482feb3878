# notebook: loop.py
# Accelerate with split batches: right, but its shuffle is another than the notebook's.
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(
    mixed_precision="fp16", dataloader_config=DataLoaderConfiguration(split_batches=True)
)
torch.manual_seed(0)
x = torch.randn(96, 8)
y = x.sum(1, keepdim=True) + torch.randn(96, 1) / 4
train_set, val_set = TensorDataset(x[:64], y[:64]), TensorDataset(x[64:], y[64:])

model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loss_fn = nn.MSELoss()
train_loader = DataLoader(train_set, batch_size=16, shuffle=True)
val_loader = DataLoader(val_set, batch_size=8)
model, optimizer, train_loader, val_loader = accelerator.prepare(  # <- other-shuffle
    model, optimizer, train_loader, val_loader
)

for epoch in range(3):
    model.train()
    for xb, yb in train_loader:
        loss = loss_fn(model(xb), yb)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    model.eval()
    figures = torch.zeros(2)
    with torch.no_grad():
        for xb, yb in val_loader:
            figures += torch.tensor([loss_fn(model(xb), yb).item() * len(xb), len(xb)])
    total, count = accelerator.reduce(figures, reduction="sum")
    accelerator.print(f"epoch {epoch}: validation loss {total / count:.4f}")

accelerator.wait_for_everyone()
if accelerator.is_main_process:
    torch.save(accelerator.unwrap_model(model).state_dict(), "model.pt")
accelerator.end_training()
