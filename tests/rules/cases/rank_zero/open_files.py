# A file that stays open is rank 0's; the other ranks write to os.devnull.

# first cell
import io, json, logging, os, shutil, subprocess, tempfile
from pathlib import Path
import matplotlib.pyplot as plt
import numpy as np
import torch, wandb
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from trl import DPOTrainer, SFTConfig, SFTTrainer

# case: a file that stays open
file = open("a.csv", "w")
class Log(TrainerCallback):
    def __init__(self):
        self.file = open("a.csv", "w")
t = SFTTrainer(llm, callbacks=[Log(), file])
t.train()
# output
file = open("a.csv" if ddp.is_main_process else os.devnull, "w")
class Log(TrainerCallback):
    def __init__(self):
        self.file = open("a.csv" if ddp.is_main_process else os.devnull, "w")
t = SFTTrainer(llm, callbacks=[Log(), file])
t.train()

# case: a file that a generator keeps open
def writer():
    with open("a.txt", "a") as file:
        while True:
            file.write(f"{(yield)}")
notes = writer()
next(notes)
for row in DataLoader(data):
    llm(row).loss.backward()
    notes.send(row)
# output
def writer():
    with open("a.txt" if ddp.is_main_process else os.devnull, "a") as file:
        while True:
            file.write(f"{(yield)}")
notes = writer()
next(notes)
for row in DataLoader(data):
    llm(row).loss.backward()
    notes.send(row)

# case: a mode that a name has
for row in DataLoader(data):
    llm(row).loss.backward()
    mode = "a" if known else "w"
    with open("a.csv", mode) as file:
        file.write("a")
# output
for row in DataLoader(data):
    llm(row).loss.backward()
    mode = "a" if known else "w"
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            with open("a.csv", mode) as file:
                file.write("a")

# case: a file that is closed after training, and one that is read before
file = open("a.jsonl", "w")
words = open("words.txt", "w")
words.write("a b")
words.close()
words = open("words.txt").read()
plt.close()
t = SFTTrainer(llm)
for _ in range(2):
    t.train()
    file.write(json.dumps(t.state.log_history) + "\n")
file.close()
t = SFTTrainer(llm, words)
t.train()
# output
file = open("a.jsonl" if ddp.is_main_process else os.devnull, "w")
words = open("words.txt" if ddp.is_main_process else os.devnull, "w")
words.write("a b")
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        words.close()
words = open("words.txt").read()
plt.close()
t = SFTTrainer(llm)
for _ in range(2):
    t.train()
    file.write(json.dumps(t.state.log_history) + "\n")
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        file.close()
t = SFTTrainer(llm, words)
t.train()

# case: a file of each turn of a loop
for name in names:
    file = open(name, "w")
    file.write(name)
    file.close()
t = SFTTrainer(llm)
t.train()
# note, line 2: this writes on every rank, because its result is used later

# case: a path that is a conditional expression
file = open(a if b else c, mode="a")
class Log(TrainerCallback):
    def __init__(self):
        self.file = open(a if b else c, mode="a")
t = SFTTrainer(llm, callbacks=[Log(), file])
t.train()
# output
file = open((a if b else c) if ddp.is_main_process else os.devnull, mode="a")
class Log(TrainerCallback):
    def __init__(self):
        self.file = open((a if b else c) if ddp.is_main_process else os.devnull, mode="a")
t = SFTTrainer(llm, callbacks=[Log(), file])
t.train()

# case: a log file
from loguru import logger
file = logger.add("a")
class Log(TrainerCallback):
    def __init__(self):
        self.file = logger.add("a")
t = SFTTrainer(llm, callbacks=[Log(), file])
t.train()
# output
from loguru import logger
file = logger.add("a" if ddp.is_main_process else os.devnull)
class Log(TrainerCallback):
    def __init__(self):
        self.file = logger.add("a" if ddp.is_main_process else os.devnull)
t = SFTTrainer(llm, callbacks=[Log(), file])
t.train()

# case: a file that is open around the training
t = SFTTrainer(llm)
with open("log.txt", "w") as f:
    t.train()
    f.write(str(t.state))
# output
t = SFTTrainer(llm)
with open("log.txt" if ddp.is_main_process else os.devnull, "w") as f:
    t.train()
    f.write(str(t.state))

# case: a file that a function opens around its loop
def main():
    with open("log.txt", "w") as f:
        for b in data:
            llm(b).loss.backward()
            f.write('x')
main()
# output
def main():
    with open("log.txt" if ddp.is_main_process else os.devnull, "w") as f:
        for b in data:
            llm(b).loss.backward()
            f.write('x')
main()

# case: a file that is closed and read
f = open("a", "w")
f.write("x")
f.close()
x = read("a")
t = SFTTrainer(llm)
t.train()
# output
f = open("a" if ddp.is_main_process else os.devnull, "w")
f.write("x")
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        f.close()
x = read("a")
t = SFTTrainer(llm)
t.train()

# case: a file that is closed and read, in a function
def go():
    f = open("a", "w")
    f.write("x")
    f.close()
    x = read("a")
go()
t = SFTTrainer(llm)
t.train()
# output
def go():
    f = open("a", "w")
    f.write("x")
    f.close()
    x = read("a")
with ddp.in_turn():  # nb2ddp: the ranks write one after another
    go()
t = SFTTrainer(llm)
t.train()

# case: a function in one line
def keep(x): torch.save(x, "x.pt")
class C(TrainerCallback):
    def on_save(self, *args, **kwargs):
        keep(1)
t = SFTTrainer(llm, callbacks=[C()])
t.train()
# output
def keep(x):
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            torch.save(x, "x.pt")
class C(TrainerCallback):
    def on_save(self, *args, **kwargs):
        keep(1)
t = SFTTrainer(llm, callbacks=[C()])
t.train()

# case: a writer of a file without a name
import csv
rows = csv.writer(open("a.csv", "w", newline=""))
class Log(TrainerCallback):
    def __init__(self):
        self.rows = csv.DictWriter(open("b.csv", "w"), fieldnames=["loss"])
t = SFTTrainer(llm, callbacks=[Log(), rows])
t.train()
# output
import csv
rows = csv.writer(open("a.csv" if ddp.is_main_process else os.devnull, "w", newline=""))
class Log(TrainerCallback):
    def __init__(self):
        self.rows = csv.DictWriter(open("b.csv" if ddp.is_main_process else os.devnull, "w"), fieldnames=["loss"])
t = SFTTrainer(llm, callbacks=[Log(), rows])
t.train()
