# Where all ranks call a function that writes, they wait for rank 0.

# first cell
import io, json, logging, os, shutil, subprocess, tempfile
from pathlib import Path
import matplotlib.pyplot as plt
import numpy as np
import torch, wandb
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from trl import DPOTrainer, SFTConfig, SFTTrainer

# case: by name
def save_best(b):
  torch.save(b, "best.pt")
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    save_best(b)
# output
def save_best(b):
  with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
      if is_main:
          torch.save(b, "best.pt")
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    save_best(b)

# case: by methods of plain classes
class Base:
    def save(self, path):
        torch.save(self.best, path)
class Stopper(Base):
    def __call__(self, loss):
        if loss < self.best:
            self.best = loss
            self.save("best.pt")
class Fitter:
    def __init__(self):
        self.stop = Stopper()
    def fit(self, loader):
        for b in loader:
            loss = llm(b).loss
            loss.backward()
            self.stop(loss)
Fitter().fit(DataLoader(data))
# output
class Base:
    def save(self, path):
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
            if is_main:
                torch.save(self.best, path)
class Stopper(Base):
    def __call__(self, loss):
        if loss < self.best:
            self.best = loss
            self.save("best.pt")
class Fitter:
    def __init__(self):
        self.stop = Stopper()
    def fit(self, loader):
        for b in loader:
            loss = llm(b).loss
            loss.backward()
            self.stop(loss)
Fitter().fit(DataLoader(data))

# case: before training, where a second rank would find the folder made and the line written
class Run:
    def __init__(self, name):
        os.makedirs(name)
    def log(self, line):
        with open("log.txt", "a") as f:
            f.write(line)
        open("last.txt", "w").write(line)
        return open("log.txt").read()
run = Run("a")
text = run.log("start")
for b in DataLoader(data):
    llm(b).loss.backward()
# output
class Run:
    def __init__(self, name):
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
            if is_main:
                os.makedirs(name)
    def log(self, line):
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
            if is_main:
                with open("log.txt", "a") as f:
                    f.write(line)
                open("last.txt", "w").write(line)
        return open("log.txt").read()
run = Run("a")
text = run.log("start")
for b in DataLoader(data):
    llm(b).loss.backward()

# case: by an event's name, and for each of several classes
class Best:
    def on_end(self, loss):
        torch.save(loss, "best.pt")
class Last:
    def on_end(self, loss):
        pass
    def on_batch(self, loss):
        np.save("last.npy", loss)
hooks = [Best(), Last()]
def fire(event, loss):
    for hook in hooks:
        getattr(hook, event)(loss)
for b in DataLoader(data):
    loss = llm(b).loss
    loss.backward()
    fire("on_batch", loss)
for hook in hooks:
    hook.on_end(loss)
for b in DataLoader(data):
    llm(b).loss.backward()
# output
class Best:
    def on_end(self, loss):
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
            if is_main:
                torch.save(loss, "best.pt")
class Last:
    def on_end(self, loss):
        pass
    def on_batch(self, loss):
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
            if is_main:
                np.save("last.npy", loss)
hooks = [Best(), Last()]
def fire(event, loss):
    for hook in hooks:
        getattr(hook, event)(loss)
for b in DataLoader(data):
    loss = llm(b).loss
    loss.backward()
    fire("on_batch", loss)
for hook in hooks:
    hook.on_end(loss)
for b in DataLoader(data):
    llm(b).loss.backward()

# case: by name, in functions
def save_best(b):
  torch.save(b, "best.pt")
def train(x):
    loader = DataLoader(data)
    for b in loader:
        llm(b).loss.backward()
        save_best(b)
def main():
    train(1)
main()
# output
def save_best(b):
  with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
      if is_main:
          torch.save(b, "best.pt")
def train(x):
    loader = DataLoader(data)
    for b in loader:
        llm(b).loss.backward()
        save_best(b)
def main():
    train(1)
main()

# case: without gradients
def save_best(b):
  torch.save(b, "best.pt")
@torch.no_grad()
def keep(b):
    save_best(b)
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    keep(b)
# output
def save_best(b):
  with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
      if is_main:
          torch.save(b, "best.pt")
@torch.no_grad()
def keep(b):
    save_best(b)
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    keep(b)

# case: under a test of the loss
def save_best(b):
  torch.save(b, "best.pt")
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    if loss < best: save_best(b)
# output
def save_best(b):
  with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
      if is_main:
          torch.save(b, "best.pt")
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    if loss < best: save_best(b)

# case: by a launched function
def save_best(b):
  torch.save(b, "best.pt")
from accelerate import notebook_launcher
def train():
    loader = DataLoader(data)
    for b in loader:
        llm(b).loss.backward()
        save_best(b)
notebook_launcher(train)
# output
def save_best(b):
  with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
      if is_main:
          torch.save(b, "best.pt")
from accelerate import notebook_launcher
def train():
    loader = DataLoader(data)
    for b in loader:
        llm(b).loss.backward()
        save_best(b)
notebook_launcher(train)

# case: after a test of a name with the date in it, and of a clock that rank 0 reads for all
import time
from datetime import datetime
out = os.path.join("runs", f"{datetime.now()}.pt")
def train():
    start = time.time()
    for b in DataLoader(data):
        llm(b).loss.backward()
        if time.time() - start > 3600:
            break
        if out is not None:
            torch.save(b, out)
train()
# output
import time
from datetime import datetime
out = os.path.join("runs", f"{datetime.now()}.pt")
def train():
    start = time.time()
    for b in DataLoader(data):
        llm(b).loss.backward()
        if time.time() - start > 3600:
            break
        if out is not None:
            with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
                if is_main:
                    torch.save(b, out)
train()

# case: in a loop that trains while there is time
import time
end = time.time() + 60
while time.time() < end:
    llm(next(batches)).loss.backward()
    torch.save(b, "x.pt")
for b in DataLoader(data):
    llm(b).loss.backward()
# output
import time
end = time.time() + 60
while time.time() < end:
    llm(next(batches)).loss.backward()
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            torch.save(b, "x.pt")
for b in DataLoader(data):
    llm(b).loss.backward()
