# What a method gets from its calls says whether it is a path.

# first cell
import os
import torch
from lib import Encoder

# case: a method of a module on its GPU, which saves what it holds
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
    def save(self, folder):
        self.encoder.save(folder)
net = Net().to("cuda")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in batches:
    net(batch).sum().backward()
    optimizer.step()
    net.save(os.path.join("out", "last"))
# output
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
    def save(self, folder):
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
            if is_main:
                self.encoder.save(folder)
net = Net().to("cuda")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in batches:
    net(batch).sum().backward()
    optimizer.step()
    net.save(os.path.join("out", "last"))
