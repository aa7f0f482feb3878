# A loop whose model nobody moves to a GPU trains on the CPU, in the script, too.

# first cell
import torch

# last cell
for rows in loader:
    net(rows).sum().backward()
    optimizer.step()

# case: nothing of GPUs
net = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters())
# note, last cell, line 2: the script trains on the CPU, as this notebook does...
# head: on_cpu=True

# case: a device that is the CPU
device = "cpu"
net = torch.nn.Linear(2, 2).to(device)
optimizer = torch.optim.SGD(net.parameters())
# note, last cell, line 2: the script trains on the CPU, as this notebook does...
# head: on_cpu=True

# case: a GPU
net = torch.nn.Linear(2, 2).cuda()
optimizer = torch.optim.SGD(net.parameters())

# case: a device out of sight
from lib import device
net = torch.nn.Linear(2, 2).to(device)
optimizer = torch.optim.SGD(net.parameters())
