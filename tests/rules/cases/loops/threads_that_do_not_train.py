# Threads that do not train stay, and so does what trains in other processes.

# first cell
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
import torch

# case: a reader, and a watch
def read(path):
    return open(path).read()
with ThreadPoolExecutor() as pool:
    texts = list(pool.map(read, paths))
threading.Thread(target=read, args=("log",)).start()

# case: processes
def train(seed):
    model = make(seed)
    optimizer = torch.optim.SGD(model.parameters())
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
    return model
with ProcessPoolExecutor(1) as pool:
    models = list(pool.map(train, [1]))
# output
def train(seed):
    model = make(seed)
    optimizer = torch.optim.SGD(model.parameters())
    ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
    ddp.check_replicas()
    return model
with ProcessPoolExecutor(1) as pool:
    models = list(pool.map(train, [1]))
# note, line 9: `train` trains in another process here: every rank trains it whole, no faster than one GPU
