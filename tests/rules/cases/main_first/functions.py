# Where training is in the same function, the statement that prepares the data is in the block, and no more.

# first cell
import torch
from torchvision.datasets import MNIST

def loaders(size):
    rows = MNIST("data", download=True)
    return torch.utils.data.DataLoader(rows, batch_size=size)

def fit(net, batches):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in batches:
        net(x).sum().backward()
        optimizer.step()

# case: a class of the notebook whose base prepares files
from torch_geometric.data import InMemoryDataset
class Graphs(InMemoryDataset):
    def process(self):
        pass
graphs = Graphs("data")
fit(torch.nn.Linear(4, 1), graphs)
# output
from torch_geometric.data import InMemoryDataset
class Graphs(InMemoryDataset):
    def process(self):
        pass
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    graphs = Graphs("data")
fit(torch.nn.Linear(4, 1), graphs)

# case: results of a function of the notebook that are kept on disk
from joblib import Memory
memory = Memory("cache")
@memory.cache
def embedded(k):
    return torch.randn(k)
features = memory.cache(len)
for k in (1, 2):
    x = embedded(k)
    fit(torch.nn.Linear(4, 1), x)
n = features(x)
fit(torch.nn.Linear(4, n), x)
# output
from joblib import Memory
memory = Memory("cache")
@memory.cache
def embedded(k):
    return torch.randn(k)
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    features = memory.cache(len)
for k in (1, 2):
    with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
        x = embedded(k)
    fit(torch.nn.Linear(4, 1), x)
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    n = features(x)
fit(torch.nn.Linear(4, n), x)

# case: data of a function that trains, and of one that it calls
def main(size):
    rows = MNIST("more", download=True)
    batches = loaders(size)
    fit(torch.nn.Linear(4, 1), batches)
main(8)
# output
def main(size):
    with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
        rows = MNIST("more", download=True)
        batches = loaders(size)
    fit(torch.nn.Linear(4, 1), batches)
main(8)

# case: a method, and a loop
class Run:
    def __init__(self, sizes):
        for size in sizes:
            self.batches = loaders(size)
    def train(self):
        for name in ("a", "b"):
            rows = MNIST(name, download=True)
            fit(torch.nn.Linear(4, 1), rows)
Run([8]).train()
# output
class Run:
    def __init__(self, sizes):
        with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
            for size in sizes:
                self.batches = loaders(size)
    def train(self):
        for name in ("a", "b"):
            with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
                rows = MNIST(name, download=True)
            fit(torch.nn.Linear(4, 1), rows)
Run([8]).train()

# case: a function that is handed on, which one rank may call alone
def objective(trial):
    batches = loaders(8)
    fit(torch.nn.Linear(4, 1), batches)
    return 1
study.optimize(objective)

# case: what Lightning's Trainer calls on every rank
import lightning
class Rows(lightning.LightningDataModule):
    def train_dataloader(self):
        return torch.utils.data.DataLoader(MNIST("data", download=True), batch_size=8)
trainer = lightning.Trainer()
trainer.fit(net, Rows())
# output
import lightning
class Rows(lightning.LightningDataModule):
    def train_dataloader(self):
        with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
            return torch.utils.data.DataLoader(MNIST("data", download=True), batch_size=8)
trainer = lightning.Trainer()
trainer.fit(net, Rows())
