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

# case: programs
import subprocess
def send(path):
    subprocess.run(["rsync", path, "there:"], check=True)
def work(jobs):
    while (path := jobs.get()) is not None:
        send(path)
threading.Thread(target=work, args=(jobs,)).start()
with ThreadPoolExecutor() as pool:
    pool.submit(send, "a.log")
# note, line 7: `work` starts a program in a thread, on every rank: begin the thread below `if ddp.is_main_process:`
# note, line 9: `send` starts a program in a thread...

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
