# All ranks of a loop execute the statements of a database; rank 0's file is the notebook's, the others' are copies.

# first cell
import sqlite3
from sqlite3 import connect
import torch
from torch import nn
from transformers import Trainer
net = nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters())

# case: a loop
base = sqlite3.connect("log.db", timeout=9)
other = connect(database=folder / "log.db")
for x in batches:
    net(x).mean().backward()
    base.execute("insert into log values (1)")
connect("log.db").execute("select * from log")
# output
base = sqlite3.connect(ddp.own_file("log.db"), timeout=9)
other = connect(database=ddp.own_file(folder / "log.db"))
for x in batches:
    net(x).mean().backward()
    base.execute("insert into log values (1)")
connect("log.db").execute("select * from log")

# case: a function that may run on one rank, and a worker's
class Rows(torch.utils.data.Dataset):
    def __getitem__(self, number):
        return connect("rows.db").execute("select * from rows").fetchone()
rows = Rows()
for x in batches:
    net(x).mean().backward()

# case: a shelf
import shelve
with shelve.open("runs") as shelf:
    shelf["n"] = 1
for x in batches:
    net(x).mean().backward()
# output
import shelve
with shelve.open(ddp.own_file("runs")) as shelf:
    shelf["n"] = 1
for x in batches:
    net(x).mean().backward()

# case: a temporary file that gets the name of another one when it is whole
import os, tempfile
def save(text, path):
    with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(path), delete=False) as f:
        f.write(text)
    os.replace(f.name, path)
for x in batches:
    net(x).mean().backward()
    save("a", "runs/state")
folder = tempfile.mkdtemp()
# output
import os, tempfile
def save(text, path):
    with tempfile.NamedTemporaryFile("w", dir=ddp.own_file(os.path.dirname(path)), delete=False) as f:
        f.write(text)
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            os.replace(f.name, path)
for x in batches:
    net(x).mean().backward()
    save("a", "runs/state")
folder = tempfile.mkdtemp()

# case: a Trainer
base = sqlite3.connect("log.db")
trainer = Trainer(net, train_dataset=d)
trainer.train()
# output
base = sqlite3.connect(ddp.own_file("log.db"))
trainer = Trainer(net, train_dataset=d)
trainer.train()
