# A method named as one of PyTorch's modules are, of an object in a list, where no other training is found.

# case: a list of objects
import torch
class Experiment:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters())
    def train(self):
        for batch in batches:
            self.model(batch).backward()
            self.optimizer.step()
for each in [Experiment(torch.nn.Linear(2, 1))]:
    each.train()
# output
import torch
class Experiment:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters())
        ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
    def train(self):
        for batch in batches:
            self.model(batch).backward()
            self.optimizer.step()
for each in [Experiment(torch.nn.Linear(2, 1))]:
    each.train()
ddp.check_replicas()
