# Where every rank needs the file or the result, the ranks write one after another.

# first cell
import io, json, logging, os, shutil, subprocess, tempfile
from pathlib import Path
import matplotlib.pyplot as plt
import numpy as np
import torch, wandb
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from trl import DPOTrainer, SFTConfig, SFTTrainer

# case: a memory-mapped file
array = np.memmap("a.bin", mode="w+", shape=3)
array[0] = 1
# output
with ddp.in_turn():  # nb2ddp: the ranks write one after another
    array = np.memmap("a.bin", mode="w+", shape=3)
array[0] = 1

# case: a function that saves what cannot be told, and removes it
def read(row):
    row["image"].save(row["file"])
    text = model.infer(row["file"])
    os.remove(row["file"])
    return text
text = read(rows[0])
# output
def read(row):
    row["image"].save(row["file"])
    text = model.infer(row["file"])
    os.remove(row["file"])
    return text
with ddp.in_turn():  # nb2ddp: the ranks write one after another
    text = read(rows[0])

# case: a function that maps a file
def mapped():
    array = np.memmap("a.dat", mode="w+", shape=(3,))
    array[:] = 1
    return array
array = mapped()
# output
def mapped():
    array = np.memmap("a.dat", mode="w+", shape=(3,))
    array[:] = 1
    return array
with ddp.in_turn():  # nb2ddp: the ranks write one after another
    array = mapped()

# case: the result of a function that writes, which something else calls
def prepare(x):
    with open("d", "w") as f:
        f.write(x)
    return open("d").read()
data = pool.map(prepare, ["x"])
# output
def prepare(x):
    with open("d", "w") as f:
        f.write(x)
    return open("d").read()
with ddp.in_turn():  # nb2ddp: the ranks write one after another
    data = pool.map(prepare, ["x"])

# case: break
for x in xs:
    with open("a", "w") as f:
        if bad(f): break
# output
for x in xs:
    with ddp.in_turn():  # nb2ddp: the ranks write one after another
        with open("a", "w") as f:
            if bad(f): break

# case: continue
for x in xs:
    with open("a", "w") as f:
        if bad(f): continue
# output
for x in xs:
    with ddp.in_turn():  # nb2ddp: the ranks write one after another
        with open("a", "w") as f:
            if bad(f): continue

# case: break in an else
for x in xs:
    with open("a", "w") as f:
        for y in x:
            pass
        else:
            break
# output
for x in xs:
    with ddp.in_turn():  # nb2ddp: the ranks write one after another
        with open("a", "w") as f:
            for y in x:
                pass
            else:
                break

# case: a command whose exit status ends the loop
for x in xs:
    if os.system("make"):
        break
# output
for x in xs:
    with ddp.in_turn():  # nb2ddp: the ranks run it one after another
        if os.system("make"):
            break

# case: lines that are appended
for x in xs:
    with open("a", "a") as f:
        f.write(x)
        break
# output
for x in xs:
    with ddp.in_turn():  # nb2ddp: the ranks write one after another
        with open("a" if ddp.is_main_process else os.devnull, "a") as f:
            f.write(x)
            break

# last cell
t = SFTTrainer(llm)
t.train()
