# An optimizer that a one-line function, a lambda or a one-line loop makes: the model has its name there alone.

# first cell
import torch
from torch.utils.data import DataLoader
net = torch.nn.Linear(2, 2)
loader = DataLoader(data, batch_size=4)

# case: a method on one line
class Module:
    def configure(self): return torch.optim.Adam(self.net.parameters())
    def fit(self):
        optimizer = self.configure()
        for x in loader:
            self.net(x).sum().backward()
            optimizer.step()
# output
class Module:
    def configure(self):
        ddp.parallelize(self.net)  # nb2ddp: each rank computes its part of every batch
        return torch.optim.Adam(self.net.parameters())
    def fit(self):
        optimizer = self.configure()
        for x in loader:
            self.net(x).sum().backward()
            optimizer.step()
        ddp.check_replicas(self.net)

# case: a model that its line makes and returns
def make():
    net = torch.nn.Linear(2, 2); return net, torch.optim.Adam(net.parameters())
net, optimizer = make()
for x in loader:
    net(x).sum().backward()
    optimizer.step()
# output
def make():
    net = torch.nn.Linear(2, 2); return net, torch.optim.Adam(ddp.parallelize(net).parameters())
net, optimizer = make()
for x in loader:
    net(x).sum().backward()
    optimizer.step()

# case: a lambda with a name
make = lambda m: torch.optim.Adam(m.parameters())
optimizer = make(net)
for x in loader:
    net(x).sum().backward()
    optimizer.step()
# output
def make(m):
    ddp.parallelize(m)  # nb2ddp: each rank computes its part of every batch
    return torch.optim.Adam(m.parameters())
optimizer = make(net)
for x in loader:
    net(x).sum().backward()
    optimizer.step()
ddp.check_replicas(net)

# case: lambdas of a table
makers = {"sgd": lambda m: torch.optim.SGD(m.parameters()), "adam": lambda m: torch.optim.Adam(m.parameters())}
optimizer = makers["sgd"](net)
for x in loader:
    net(x).sum().backward()
    optimizer.step()
# output
makers = {"sgd": lambda m: torch.optim.SGD(ddp.parallelize(m).parameters()), "adam": lambda m: torch.optim.Adam(ddp.parallelize(m).parameters())}
optimizer = makers["sgd"](net)
for x in loader:
    net(x).sum().backward()
    optimizer.step()

# case: a loop over models
optimizers = []
nets = [torch.nn.Linear(2, 2) for _ in range(3)]
for m in nets: optimizers.append(torch.optim.Adam(m.parameters()))
for x in loader:
    for m, optimizer in zip(nets, optimizers):
        m(x).sum().backward()
        optimizer.step()
# output
optimizers = []
nets = [torch.nn.Linear(2, 2) for _ in range(3)]
for m in nets:
    optimizers.append(torch.optim.Adam(m.parameters()))
    ddp.parallelize(m)  # nb2ddp: each rank computes its part of every batch
for x in loader:
    for m, optimizer in zip(nets, optimizers):
        m(x).sum().backward()
        optimizer.step()
ddp.check_replicas(m)
