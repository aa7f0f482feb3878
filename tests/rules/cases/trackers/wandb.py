# Where a notebook names W&B's mode itself, the other ranks have none: it would win over what the script sets for them.

# first cell
import os
import torch
import wandb
from trl import SFTTrainer

# case: in init() and in the environment
os.environ["WANDB_MODE"] = "offline"
wandb.init(project="p", mode=mode)
# output
os.environ["WANDB_MODE"] = "offline" if ddp.is_main_process else "disabled"
wandb.init(project="p", mode=mode if ddp.is_main_process else "disabled")

# case: no mode
wandb.init(project="p")
mode = os.environ["WANDB_MODE"]

# case: what is read of an artifact, which other ranks do not have
def width(run):
    artifact = run.use_artifact("net:latest")
    return artifact.metadata["width"], artifact.download()
run = wandb.init()
model = Net(width(run))
print(run.use_artifact("rows:latest").version)
files = run.use_artifact("rows:latest").files()
made = wandb.Artifact("net", type="model").name
# output
def width(run):
    artifact = run.use_artifact("net:latest")
    return ddp.from_main_process(lambda: artifact.metadata)["width"], artifact.download()
run = wandb.init()
model = Net(width(run))
print(ddp.from_main_process(lambda: run.use_artifact("rows:latest").version))
files = run.use_artifact("rows:latest").files()
made = wandb.Artifact("net", type="model").name
# note, line 7: only rank 0 has this artifact; attributes and download() go to all, in a cell

# case: whether the run is a resumed one
run = wandb.init(project="p", resume=True)
if wandb.run.resumed:
    model = load("last.pt")
first = run.starting_step if run.resumed else 0
# output
run = wandb.init(project="p", resume=True)
if ddp.from_main_process(lambda: wandb.run.resumed):
    model = load("last.pt")
first = ddp.from_main_process(lambda: run.starting_step) if ddp.from_main_process(lambda: run.resumed) else 0

# case: what a run of Lightning's logger has
from lightning.pytorch.loggers import CSVLogger
from helpers import Runs
logger, runs = CSVLogger("logs"), Runs()
logger.experiment.add(1)
figures = read(logger.experiment.metrics_file_path, runs.experiment.path)
# output
from lightning.pytorch.loggers import CSVLogger
from helpers import Runs
logger, runs = CSVLogger("logs"), Runs()
logger.experiment.add(1)
figures = read(ddp.from_main_process(lambda: logger.experiment.metrics_file_path), runs.experiment.path)

# last cell
trainer = SFTTrainer(model)
trainer.train()
