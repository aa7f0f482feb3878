# An `if` that looks for a name that is free yet is for all ranks at once: the next one would find another name.

# first cell
import os
from pathlib import Path
from trl import SFTTrainer

# case: counted up
run = "run"
if os.path.exists(run):
    n = 2
    while os.path.exists(f"run{n}"):
        n += 1
    run = f"run{n}"
    os.makedirs(run, exist_ok=True)

# case: numbered by the folders that are there
if os.path.isdir("runs"):
    n = len(os.listdir("runs"))
    Path(f"runs/{n}").mkdir(exist_ok=True)

# case: a folder of one name
if os.path.isdir("runs"):
    n = len(os.listdir("runs"))
    os.makedirs("best", exist_ok=True)
# output
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    if os.path.isdir("runs"):
        n = len(os.listdir("runs"))
        os.makedirs("best", exist_ok=True)

# case: folders named like those that are there
if not os.path.exists("out"):
    target = "out"
    for name in os.listdir("raw"):
        os.makedirs(f"{target}/{name}", exist_ok=True)
# output
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    if not os.path.exists("out"):
        target = "out"
        for name in os.listdir("raw"):
            os.makedirs(f"{target}/{name}", exist_ok=True)

# last cell
trainer = SFTTrainer(model)
trainer.train()
