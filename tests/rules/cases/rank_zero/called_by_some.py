# Where one rank alone may call a function that writes, no rank waits.

# first cell
import io, json, logging, os, shutil, subprocess, tempfile
from pathlib import Path
import matplotlib.pyplot as plt
import numpy as np
import torch, wandb
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from trl import DPOTrainer, SFTConfig, SFTTrainer

# case: a line of a log, before training
def log(line):
    with Path("run.log").open("a") as f:
        f.write(line)
hooks = [log]
log("begins")
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
# output
def log(line):
    if ddp.is_main_process:  # nb2ddp: only rank 0 writes
        with Path("run.log").open("a") as f:
            f.write(line)
hooks = [log]
log("begins")
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()

# case: also as a value
def save_best(b):
  torch.save(b, "best.pt")
hooks = [save_best]
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    save_best(b)
# output
def save_best(b):
  if ddp.is_main_process:  # nb2ddp: only rank 0 writes
      torch.save(b, "best.pt")
hooks = [save_best]
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    save_best(b)

# case: also as an argument
def save_best(b):
  torch.save(b, "best.pt")
register(save_best)
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    save_best(b)
# output
def save_best(b):
  if ddp.is_main_process:  # nb2ddp: only rank 0 writes
      torch.save(b, "best.pt")
register(save_best)
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    save_best(b)

# case: by a method that a library calls
class Net(torch.nn.Module):
    def forward(self, b):
        self.note(b)
    def note(self, b):
        np.save("b.npy", b)
class Log(TrainerCallback):
    def on_step(self, b):
        np.save("l.npy", b)
class Items:
    def __getitem__(self, i):
        np.save("i.npy", i)
net, log = Net(), Log()
loader = DataLoader(Items())
for b in loader:
    net(b)
    llm(b).loss.backward()
    log.on_step(b)
# output
class Net(torch.nn.Module):
    def forward(self, b):
        self.note(b)
    def note(self, b):
        if ddp.is_main_process:  # nb2ddp: only rank 0 writes
            np.save("b.npy", b)
class Log(TrainerCallback):
    def on_step(self, b):
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
            if is_main:
                np.save("l.npy", b)
class Items:
    def __getitem__(self, i):
        if ddp.is_main_process:  # nb2ddp: only rank 0 writes
            np.save("i.npy", i)
net, log = Net(), Log()
loader = DataLoader(Items())
for b in loader:
    net(b)
    llm(b).loss.backward()
    log.on_step(b)

# case: by a method that is passed on
class C:
    def keep(self, b):
        torch.save(b, "best.pt")
c = C()
register(c.keep)
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    c.keep(b)
# output
class C:
    def keep(self, b):
        if ddp.is_main_process:  # nb2ddp: only rank 0 writes
            torch.save(b, "best.pt")
c = C()
register(c.keep)
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    c.keep(b)

# case: by a lambda
def save_best(b):
  torch.save(b, "best.pt")
keep = lambda b: save_best(b)
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    save_best(b)
# output
def save_best(b):
  if ddp.is_main_process:  # nb2ddp: only rank 0 writes
      torch.save(b, "best.pt")
keep = lambda b: save_best(b)
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    save_best(b)

# case: by a function that is registered
def save_best(b):
  torch.save(b, "best.pt")
@on_save
def keep(b):
    save_best(b)
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    save_best(b)
# output
def save_best(b):
  if ddp.is_main_process:  # nb2ddp: only rank 0 writes
      torch.save(b, "best.pt")
@on_save
def keep(b):
    save_best(b)
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    save_best(b)

# case: after an error
def save_best(b):
  torch.save(b, "best.pt")
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    try: step()
    except Error: save_best(b)
# output
def save_best(b):
  if ddp.is_main_process:  # nb2ddp: only rank 0 writes
      torch.save(b, "best.pt")
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    try: step()
    except Error: save_best(b)

# case: a test of torchrun's variables, which the script takes away: all ranks pass it
import os
def save_best(b):
  if int(os.environ.get("LOCAL_RANK", 0)) != 0:
    return
  with open("best.txt", "w") as f:
    f.write(str(b))
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    save_best(b)
# output
import os
def save_best(b):
  if int(os.environ.get("LOCAL_RANK", 0)) != 0:
    return
  with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
      if is_main:
          with open("best.txt", "w") as f:
            f.write(str(b))
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    save_best(b)

# case: by a clock of each rank's own
import time
def log(b):
  with open("log.txt", "w") as f:
      f.write(str(b))
loader = DataLoader(data)
last = 0
for b in loader:
    llm(b).loss.backward()
    if time.time() - last > 60:
        last = time.time()
        log(b)
# output
import time
def log(b):
  with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
      if is_main:
          with open("log.txt", "w") as f:
              f.write(str(b))
loader = DataLoader(data)
last = 0
for b in loader:
    llm(b).loss.backward()
    if time.time() - last > 60:
        last = time.time()
        log(b)

# case: by a clock, in a cell
import time
last = time.time()
for b in DataLoader(data):
    llm(b).loss.backward()
    if time.time() - last > 60:
        torch.save(b, "x.pt")
        last = time.time()
# output
import time
last = time.time()
for b in DataLoader(data):
    llm(b).loss.backward()
    if time.time() - last > 60:
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
            if is_main:
                torch.save(b, "x.pt")
        last = time.time()
