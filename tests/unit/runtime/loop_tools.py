"""What the programs in loops/ share: rows, batches, models, and a loop; a script begins with it."""

TOOLS = """
import copy, random, torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(11)
def rows(count=22, width=5, classes=3):
    g = torch.Generator().manual_seed(1)
    return torch.randn(count, width, generator=g), torch.randint(0, classes, (count,), generator=g)
def batches(*tensors, size=4):
    return list(zip(*(tensor.split(size) for tensor in tensors)))
figures, losses = [], []
def log(*values):
    figures.append([float(value.detach()) for value in values])
def train(model, data, loss_of, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in data:
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
def end(*models):
    ddp.check_replicas(models[0])
    note(figures=figures, losses=losses, parameters=[p.detach() for model in models for p in model.parameters()],
         drawn=[random.random(), torch.rand(1).item()])
def mlp(width=5, classes=3):
    return nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, classes))
class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp()
class Recurrent(nn.Module):  # sequence first
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(5, 6), nn.Linear(6, 3)
    def forward(self, x):
        return self.head(self.lstm(x)[0][-1])
class TwoTargets(nn.Module):  # the second is missing (NaN) in some rows
    def __init__(self):
        super().__init__()
        self.body, self.one, self.two, self.calls = nn.Linear(5, 8), nn.Linear(8, 1), nn.Linear(8, 1), 0
    def hidden(self, x):
        self.calls += 1
        return F.dropout(torch.tanh(self.body(x)), 0.2, self.training)
def targets(*missing, count=28):
    t = torch.randn(count)
    t[list(missing)] = float("nan")
    x = rows(count)[0]
    return x, x.sum(1), t
x, y = rows()
"""
