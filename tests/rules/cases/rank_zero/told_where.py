# What a library is told to write, or keeps of a run's figures, rank 0 writes.

# first cell
from trl import SFTTrainer

# case: parts of a folder
import splitfolders
splitfolders.ratio("rows", output="parts", seed=1)
# output
import splitfolders
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        splitfolders.ratio("rows", output="parts", seed=1)

# case: a function of the notebook, and one that gets the model
import engine
def ratio(rows, output):
    return rows
ratio("rows", output="parts")
model = torch.nn.Linear(1, 1)
engine.warm_up(model, save_dir="parts")

# case: a tracker
import trackio
trackio.init(project="p")
# output
import trackio
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        trackio.init(project="p")

# case: a tracker's run
import swanlab
run = swanlab.init(project="p")
run.log({"rows": 3})
# output
import swanlab
run = swanlab.init(project="p")
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        run.log({"rows": 3})
# note, line 2: this writes on every rank, because its result is used later

# case: a file is synchronized, which other ranks do not write
import os
log = open("log", "w")
log.write("x")
os.fsync(log.fileno())
trainer = SFTTrainer(model)
# output
import os
log = open("log" if ddp.is_main_process else os.devnull, "w")
log.write("x")
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        os.fsync(log.fileno())
trainer = SFTTrainer(model)

# case: a callback of a tracker, which a Trainer starts
from swanlab.integration.transformers import SwanLabCallback
callback = SwanLabCallback(project="p")

# case: a name that says that files are moved
from d2l import torch as d2l
def prepare(folder):
    d2l.reorg_test(folder)
prepare("dogs")
# output
from d2l import torch as d2l
def prepare(folder):
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            d2l.reorg_test(folder)
prepare("dogs")

# last cell
trainer = SFTTrainer(model, train_dataset=rows)
trainer.train()
