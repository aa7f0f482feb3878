# A loop changes items of an array in a file: rank 0's is the notebook's, the others' are copies, and all read the same.

# first cell
import h5py
import numpy as np
import torch
from numpy.lib.format import open_memmap
from torch import nn
from transformers import Trainer
net = nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters())

# case: a loop
class Bank:
    def __init__(self):
        self.rows = open_memmap("rows.npy", "w+", shape=(9,))
    def add(self, n, x):
        self.rows[n] += x
sums = np.memmap("sums.bin", dtype="float32", mode="w+", shape=(9,))
old = np.load("old.npy", mmap_mode="r+")
file = h5py.File("log.h5", "a")
bank = Bank()
for n, x in enumerate(batches):
    loss = net(x).mean()
    loss.backward()
    sums[n] += loss.item()
    old[n] = sums[n]
    file["loss"][n] = loss.item()
    bank.add(n, loss.item())
# output
class Bank:
    def __init__(self):
        self.rows = open_memmap(ddp.own_file("rows.npy"), "w+", shape=(9,))
    def add(self, n, x):
        self.rows[n] += x
sums = np.memmap(ddp.own_file("sums.bin"), dtype="float32", mode="w+", shape=(9,))
old = np.load(ddp.own_file("old.npy"), mmap_mode="r+")
file = h5py.File(ddp.own_file("log.h5"), "a")
bank = Bank()
for n, x in enumerate(batches):
    loss = net(x).mean()
    loss.backward()
    sums[n] += loss.item()
    old[n] = sums[n]
    file["loss"][n] = loss.item()
    bank.add(n, loss.item())

# case: what only reads, and what is filled before training
rows = np.memmap("rows.bin", dtype="float32", mode="r", shape=(9,))
copy = np.memmap("rows.bin", mode="c")
whole = np.load("whole.npy")
data = np.memmap("data.bin", mode="r+")
for n in range(9):
    data[n] = n
for n, x in enumerate(batches):
    net(x).mean().backward()
    copy[n] = data[n]

# case: a Trainer
sums = np.memmap("sums.bin", mode="r+")
class Mine(Trainer):
    def compute_loss(self, model, inputs):
        sums[0] = 1
trainer = Mine(net, train_dataset=d)
trainer.train()
