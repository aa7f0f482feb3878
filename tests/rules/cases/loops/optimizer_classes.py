# An optimizer whose class is a value: known by its steps.

# first cell
import torch
from models import model

# case: a class from an argument, in a class
class Learner:
    def __init__(self, model, opt_func=torch.optim.Adam):
        self.model = model
        self.opt = opt_func(self.model.parameters(), lr=0.1)
    def fit(self, batches):
        for x, y in batches:
            ((self.model(x) - y) ** 2).mean().backward()
            self.opt.step()
learner = Learner(model)
learner.fit(batches)
# output
class Learner:
    def __init__(self, model, opt_func=torch.optim.Adam):
        self.model = model
        self.opt = opt_func(self.model.parameters(), lr=0.1)
        ddp.parallelize(self.model)  # nb2ddp: each rank computes its part of every batch
    def fit(self, batches):
        for x, y in batches:
            ((self.model(x) - y) ** 2).mean().backward()
            self.opt.step()
learner = Learner(model)
learner.fit(batches)
ddp.check_replicas()

# case: a class from a table, given to a GradScaler
solver = KINDS[name]([{"params": model.parameters()}])
for x, y in batches:
    scaler.scale(((model(x) - y) ** 2).mean()).backward()
    scaler.step(solver)
# output
solver = KINDS[name]([{"params": model.parameters()}])
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for x, y in batches:
    scaler.scale(((model(x) - y) ** 2).mean()).backward()
    scaler.step(solver)
ddp.check_replicas()

# case: a class from a function, which returns what it makes
def build(net, kind):
    return kind(net.parameters(), lr=0.1)
solver = build(model, torch.optim.SGD)
count = sum(p.numel() for p in model.parameters())
average = Average(model.parameters())
for x, y in batches:
    ((model(x) - y) ** 2).mean().backward()
    solver.step()
    average.update()
    average.step(model.parameters())
# output
def build(net, kind):
    return kind(net.parameters(), lr=0.1)
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
solver = build(model, torch.optim.SGD)
count = sum(p.numel() for p in model.parameters())
average = Average(model.parameters())
for x, y in batches:
    ((model(x) - y) ** 2).mean().backward()
    solver.step()
    average.update()
    average.step(model.parameters())
ddp.check_replicas()
