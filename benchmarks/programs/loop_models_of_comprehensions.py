# %%
import torch, random, numpy as np
import torch.nn as nn
import torch.nn.functional as F
random.seed(0); np.random.seed(0); torch.manual_seed(0)
X, Y = torch.randn(40, 3), torch.randn(40, 1)
def net(): return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
# %%
members = [net() for _ in range(3)]
opt = torch.optim.Adam([p for m in members for p in m.parameters()], 1e-2)
for epoch in range(2):
    for b in torch.randperm(40).split(10):
        loss = sum(F.mse_loss(m(X[b]), Y[b]) for m in members)
        opt.zero_grad(); loss.backward(); opt.step()
    print(f"{loss.item():.5f}")
# %%
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.head = nn.Linear(3, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)
model = Net()
nets = {"a": net(), "b": net()}
groups = [{"params": layer.parameters(), "lr": 0.01 * 0.5 ** i} for i, layer in enumerate(model.layers)]
groups += [{"params": model.head.parameters(), "lr": 0.1}]
opt = torch.optim.SGD(groups, lr=0.1)
opts = {k: torch.optim.Adam(n.parameters(), 1e-2) for k, n in nets.items()}
for b in torch.randperm(40).split(10):
    loss = F.mse_loss(model(X[b]), Y[b])
    opt.zero_grad(); loss.backward(); opt.step()
    for k in nets:
        of_net = F.mse_loss(nets[k](X[b]), Y[b])
        opts[k].zero_grad(); of_net.backward(); opts[k].step()
print(f"{loss.item():.5f} {of_net.item():.5f}")
