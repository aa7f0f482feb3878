# DataParallel in a function, a class and an expression; its names in saved files

# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(44, 6)
y = (x[:, 0] > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
# %%
def build():
    net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
    return nn.DataParallel(net)


class Fitter:
    def __init__(self, net):
        self.net = nn.DataParallel(net, device_ids=list(range(torch.cuda.device_count())) or None)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def fit(self, epochs):
        for epoch in range(epochs):
            for inputs, targets in loader:
                loss = F.cross_entropy(self.net(inputs), targets).mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            print("fitter", epoch, round(loss.item(), 4))

    def save(self, path):
        torch.save(self.net.module.state_dict(), path)


# %%
fitter = Fitter(nn.Linear(6, 2))
fitter.fit(2)
fitter.save("fitter.pt")
# %%
model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for inputs, targets in loader:
        loss = F.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("model", epoch, round(loss.item(), 4))
    torch.save(model.state_dict(), "last.pt")
# %%
to_save = model.module if hasattr(model, "module") else model
torch.save(to_save.state_dict(), "inner.pt")
loaded = torch.load("last.pt")
print(list(loaded))
again = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
again.load_state_dict({name.removeprefix("module."): value for name, value in loaded.items()})
print(type(model).__name__, isinstance(model, nn.DataParallel))
