# What several processes may do at one time runs on every rank.

# first cell
import io, json, logging, os, shutil, subprocess, tempfile
from pathlib import Path
import matplotlib.pyplot as plt
import numpy as np
import torch, wandb
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from trl import DPOTrainer, SFTConfig, SFTTrainer

# case: a file read
with open("a") as f:
    x = f.read()
with open("b", "rb") as f:
    y = f.read()

# case: a folder that may exist
os.makedirs("out", exist_ok=True)

# case: memory
buffer = io.BytesIO()
torch.save(x, buffer)

# case: memory in a with block
with io.StringIO() as text:
    df.to_csv(text)

# case: a temporary file
with tempfile.NamedTemporaryFile("w") as f:
    df.to_csv(f.name)

# case: a temporary folder
def keep(x):
    folder = tempfile.mkdtemp()
    torch.save(x, folder)
keep(x)

# case: code that never runs
if False:
    llm.save_pretrained("merged")
    llm.generate(**x)

# case: a function that is never called
def show(q):
    return llm.generate(**q)

# case: printing
print("start")

# case: logging in
wandb.login()

# case: a run of wandb, which only rank 0 has
run = wandb.init(project="x")

# case: a log on the screen
logging.basicConfig(level=20)

# case: a plot on the screen
plt.plot(x)
plt.show()

# case: an install, which the install step runs
os.system("pip install x")

# case: what runs in the end
import atexit
atexit.register(print)

# case: a text, where a path would write a file
rows = df.to_json(orient="records")

# last cell
t = SFTTrainer(llm)
t.train()
