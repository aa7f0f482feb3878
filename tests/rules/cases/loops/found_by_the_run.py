# A model that an optimizer is not given by its name is found by the run; no line reads a name that may not exist.

# first cell
import itertools
import torch
from torch.utils.data import DataLoader
from models import model, nets
loader = DataLoader(data, batch_size=4)

# case: parameters of a list
params = list(model.parameters())
optimizer = torch.optim.Adam(params)
for x in loader:
    net(x).sum().backward()
    optimizer.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
params = list(model.parameters())
optimizer = torch.optim.Adam(params)
for x in loader:
    net(x).sum().backward()
    optimizer.step()
ddp.check_replicas()

# case: a part of a model
optimizer = torch.optim.Adam(model.head.parameters())
for x in loader:
    net(x).sum().backward()
    optimizer.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
optimizer = torch.optim.Adam(model.head.parameters())
for x in loader:
    net(x).sum().backward()
    optimizer.step()
ddp.check_replicas()

# case: the layers of a model
optimizer = torch.optim.Adam([{"params": layer.parameters()} for layer in list(model.children())[-2:]])
for x in loader:
    net(x).sum().backward()
    optimizer.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
optimizer = torch.optim.Adam([{"params": layer.parameters()} for layer in list(model.children())[-2:]])
for x in loader:
    net(x).sum().backward()
    optimizer.step()
ddp.check_replicas()

# case: an optimizer for each of several models
optimizers = {name: torch.optim.Adam(net.parameters()) for name, net in enumerate(nets)}
for x in loader:
    for name, net in enumerate(nets):
        net(x).sum().backward()
        optimizers[name].step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
optimizers = {name: torch.optim.Adam(net.parameters()) for name, net in enumerate(nets)}
for x in loader:
    for name, net in enumerate(nets):
        net(x).sum().backward()
        optimizers[name].step()
ddp.check_replicas()

# case: one optimizer for models that are made on the way
optimizer = torch.optim.Adam([p for net in make_nets(3) for p in net.parameters()])
for x in loader:
    net(x).sum().backward()
    optimizer.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
optimizer = torch.optim.Adam([p for net in make_nets(3) for p in net.parameters()])
for x in loader:
    net(x).sum().backward()
    optimizer.step()
ddp.check_replicas()

# case: a second model that one branch makes
params = list(model.parameters())
if with_head:
    head = torch.nn.Linear(2, 2)
    params += list(head.parameters())
optimizer = torch.optim.Adam(params)
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
params = list(model.parameters())
if with_head:
    head = torch.nn.Linear(2, 2)
    params += list(head.parameters())
optimizer = torch.optim.Adam(params)
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
ddp.check_replicas()

# case: a second model that may not exist
optimizer = torch.optim.Adam([*model.parameters(), *(head.parameters() if with_head else [])])
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
optimizer = torch.optim.Adam([*model.parameters(), *(head.parameters() if with_head else [])])
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
ddp.check_replicas()

# case: a second model with an optimizer of its own
optimizer = torch.optim.Adam(model.parameters())
if with_head:
    head = torch.nn.Linear(2, 2)
    of_head = torch.optim.Adam(head.parameters())
for x in loader:
    model(x).sum().backward()
    optimizer.step()
# output
optimizer = torch.optim.Adam(model.parameters())
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
if with_head:
    head = torch.nn.Linear(2, 2)
    of_head = torch.optim.Adam(head.parameters())
    ddp.parallelize(head)  # nb2ddp: each rank computes its part of every batch
for x in loader:
    model(x).sum().backward()
    optimizer.step()
ddp.check_replicas()

# case: all that trains is in a branch
if kind != "none":
    optimizer = torch.optim.Adam(model.parameters())
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
# output
if kind != "none":
    optimizer = torch.optim.Adam(model.parameters())
    ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
    ddp.check_replicas()

# case: attributes of a class
class Task:
    def __init__(self, kind):
        params = self.cnn.parameters() if kind == "cnn" else self.mlp.parameters()
        self.optimizer = torch.optim.Adam(params)
    def fit(self):
        for x in loader:
            self.net(x).sum().backward()
            self.optimizer.step()
task = Task("cnn")
task.fit()
# output
class Task:
    def __init__(self, kind):
        params = self.cnn.parameters() if kind == "cnn" else self.mlp.parameters()
        self.optimizer = torch.optim.Adam(params)
    def fit(self):
        for x in loader:
            self.net(x).sum().backward()
            self.optimizer.step()
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
task = Task("cnn")
task.fit()
ddp.check_replicas()

# case: a method on one line
class Module:
    def configure(self): return torch.optim.Adam(self.net.parameters())
    def fit(self):
        optimizer = self.configure()
        for x in loader:
            self.net(x).sum().backward()
            optimizer.step()
Module().fit()
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
        ddp.check_replicas()
Module().fit()

# case: a model that its line makes and returns
def make():
    net = torch.nn.Linear(2, 2); return net, torch.optim.Adam(net.parameters())
net, optimizer = make()
for x in loader:
    net(x).sum().backward()
    optimizer.step()
# output
def make():
    net = torch.nn.Linear(2, 2); return net, torch.optim.Adam(net.parameters())
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
net, optimizer = make()
for x in loader:
    net(x).sum().backward()
    optimizer.step()
ddp.check_replicas()

# case: lambdas of a table
makers = {"sgd": lambda m: torch.optim.SGD(m.parameters()), "adam": lambda m: torch.optim.Adam(m.parameters())}
optimizer = makers["sgd"](net)
for x in loader:
    net(x).sum().backward()
    optimizer.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
makers = {"sgd": lambda m: torch.optim.SGD(m.parameters()), "adam": lambda m: torch.optim.Adam(m.parameters())}
optimizer = makers["sgd"](net)
for x in loader:
    net(x).sum().backward()
    optimizer.step()
ddp.check_replicas()

# case: a loop on one line
optimizers = []
for m in nets: optimizers.append(torch.optim.Adam(m.parameters()))
for x in loader:
    for m, optimizer in zip(nets, optimizers):
        m(x).sum().backward()
        optimizer.step()
# output
optimizers = []
for m in nets:
    ddp.parallelize(m)  # nb2ddp: each rank computes its part of every batch
    optimizers.append(torch.optim.Adam(m.parameters()))
for x in loader:
    for m, optimizer in zip(nets, optimizers):
        m(x).sum().backward()
        optimizer.step()
ddp.check_replicas()

# case: an optimizer of another library's function
optimizer, scheduler = create_optimizer(model)
for x in loader:
    net(x).sum().backward()
    optimizer.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
optimizer, scheduler = create_optimizer(model)
for x in loader:
    net(x).sum().backward()
    optimizer.step()
ddp.check_replicas()

# case: a library's model whose parameters nobody names
for x in loader:
    task.loss(x).backward()
    task.update(task.parameters())
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
for x in loader:
    task.loss(x).backward()
    task.update(task.parameters())
ddp.check_replicas()

# case: no optimizer
net = torch.nn.Linear(2, 2)
for x in loader:
    net(x).sum().backward()
    for p in net.parameters():
        p.data -= 0.1 * p.grad
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
net = torch.nn.Linear(2, 2)
for x in loader:
    net(x).sum().backward()
    for p in net.parameters():
        p.data -= 0.1 * p.grad
ddp.check_replicas()

# case: no optimizer, and no backward()
net = torch.nn.Linear(2, 2)
weights = [p for p in net.parameters() if p.requires_grad]
for x in loader:
    for p, slope in zip(weights, torch.autograd.grad(net(x).sum(), weights)):
        p.data -= 0.1 * slope
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
net = torch.nn.Linear(2, 2)
weights = [p for p in net.parameters() if p.requires_grad]
for x in loader:
    for p, slope in zip(weights, torch.autograd.grad(net(x).sum(), weights)):
        p.data -= 0.1 * slope
ddp.check_replicas()

# case: a Trainer between two loops
import transformers
optimizer = make_optimizer(model)
for x in loader:
    model(x).sum().backward()
    optimizer.step()
trainer = transformers.Trainer(model)
trainer.train()
optimizer = make_optimizer(model)
for x in loader:
    model(x).sum().backward()
    optimizer.step()
# output
import transformers
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
optimizer = make_optimizer(model)
for x in loader:
    model(x).sum().backward()
    optimizer.step()
ddp.check_replicas()
trainer = transformers.Trainer(model)
trainer.train()
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
optimizer = make_optimizer(model)
for x in loader:
    model(x).sum().backward()
    optimizer.step()
ddp.check_replicas()

# case: a model that a helper steps by hand
net = torch.nn.Linear(2, 1)
def step(model, rows):
    model(rows).sum().backward()
    with torch.no_grad():
        model.weight -= 0.1 * model.weight.grad
def fit(model):
    for rows in loader:
        step(model, rows)
fit(net)
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
net = torch.nn.Linear(2, 1)
def step(model, rows):
    model(rows).sum().backward()
    with torch.no_grad():
        model.weight -= 0.1 * model.weight.grad
def fit(model):
    for rows in loader:
        step(model, rows)
fit(net)
ddp.check_replicas()
