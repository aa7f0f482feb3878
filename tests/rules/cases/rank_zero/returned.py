# What a function returns must come from every rank.

# first cell
import io, json, logging, os, shutil, subprocess, tempfile
from pathlib import Path
import matplotlib.pyplot as plt
import numpy as np
import torch, wandb
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from trl import DPOTrainer, SFTConfig, SFTTrainer

# case: a block returns, in a metric
def metric(p):
    with open("a", "w") as f:
        f.write("x")
        return 1
t = SFTTrainer(llm, compute_metrics=metric)
t.train()
# output
def metric(p):
    with open("a" if ddp.is_main_process else os.devnull, "w") as f:
        f.write("x")
        return 1
t = SFTTrainer(llm, compute_metrics=metric)
t.train()

# case: a block returns, in a function of the loop
def save_best(b):
    with open("a", "w") as f:
        f.write("x")
        return 1
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    save_best(b)
# output
def save_best(b):
    with ddp.in_turn():  # nb2ddp: the ranks write one after another
        with open("a", "w") as f:
            f.write("x")
            return 1
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    save_best(b)

# case: a block binds what is returned, in a metric
def metric(p):
    with open("a", "w") as f:
        n = f.write("x")
    return n
t = SFTTrainer(llm, compute_metrics=metric)
t.train()
# output
def metric(p):
    with open("a" if ddp.is_main_process else os.devnull, "w") as f:
        n = f.write("x")
    return n
t = SFTTrainer(llm, compute_metrics=metric)
t.train()

# case: a block binds what is returned, in a function of the loop
def save_best(b):
    with open("a", "w") as f:
        n = f.write("x")
    return n
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    save_best(b)
# output
def save_best(b):
    with ddp.in_turn():  # nb2ddp: the ranks write one after another
        with open("a", "w") as f:
            n = f.write("x")
    return n
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
    save_best(b)

# case: a metric writes in its return statement
def metric(p):
    return torch.save(p, "p.pt") or 1
t = SFTTrainer(llm, compute_metrics=metric)
t.train()
# note, line 2: this writes on every rank, because the rest of its function needs it
