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

# last cell
trainer = SFTTrainer(model)
trainer.train()
