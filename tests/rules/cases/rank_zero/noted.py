# A command whose result is read runs on every rank, and is noted.

# first cell
import io, json, logging, os, shutil, subprocess, tempfile
from pathlib import Path
import matplotlib.pyplot as plt
import numpy as np
import torch, wandb
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from trl import DPOTrainer, SFTConfig, SFTTrainer

# case: a program
r = subprocess.run(["make", "all"])
# note, line 1: this runs on every rank, because its result is used later

# case: a program with an argument of that name
r = subprocess.run(["./deploy", "x", "--version"])
# note, line 1: this runs on every rank, because ...

# case: more than a question
r = subprocess.run("nvidia-smi > gpus.txt; make", shell=True)
# note, line 1: this runs on every rank, because ...

# case: what a name holds
r = subprocess.run(command)
# note, line 1: this runs on every rank, because ...

# last cell
if r.returncode == 0:
    print(r)
t = SFTTrainer(llm)
t.train()
