# %%
import torch, random, numpy as np
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)

X = torch.randn(50, 8); y = (X[:, 0] > 0).long()
loaders = {p: DataLoader(TensorDataset(X[a:b], y[a:b]), batch_size=8, shuffle=p == "train") for p, a, b in (("train", 0, 36), ("val", 36, 50))}
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
first = next(iter(loaders["train"]))
print(first[0].shape, float(first[0].sum()))
# %%
for epoch in range(2):
    for phase in ["train", "val"]:
        model.train(phase == "train")
        running, correct = 0.0, 0
        for xb, yb in loaders[phase]:
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                out = model(xb)
                loss = F.cross_entropy(out, yb)
                if phase == "train":
                    loss.backward()
                    optimizer.step()
            running += loss.item() * xb.size(0)
            correct += (out.argmax(1) == yb).sum().item()
        print(epoch, phase, f"{running / len(loaders[phase].dataset):.4f} {correct / len(loaders[phase].dataset):.4f}")
