# What Lightning's decorator leaves to rank 0, the others wait for in a loop by hand, too.

# first cell
import json
import torch
from lightning.pytorch.utilities import rank_zero_only
net = torch.nn.Linear(2, 2)
optimizer = torch.optim.Adam(net.parameters())

# case: a function that writes what all ranks read
@rank_zero_only
def note(loss):
    with open("loss.json", "w") as file:
        json.dump(loss, file)
for batch in loader:
    loss = net(batch).sum()
    loss.backward()
    optimizer.step()
    note(loss.item())
    last = json.load(open("loss.json"))
# output
@ddp.rank_zero_only
def note(loss):
    with open("loss.json", "w") as file:
        json.dump(loss, file)
for batch in loader:
    loss = net(batch).sum()
    loss.backward()
    optimizer.step()
    note(loss.item())
    last = json.load(open("loss.json"))

# case: another function of this name
from helpers import rank_zero_only
@rank_zero_only
def note(loss):
    print(loss)
