# A command below the notebook's own test of the rank: the other ranks would be waited for in vain.

# first cell
import os
from trl import SFTTrainer
rank = int(os.environ["RANK"])

# case: before training
if rank == 0:
    !wget https://example.org/data.json
SFTTrainer(model).train()
# decline, line 2: `rank == 0` lets some ranks alone come to a command that the script runs once, on rank 0, by itself; take the condition away

# case: after training
SFTTrainer(model).train()
if rank == 0:
    !ls
# output
SFTTrainer(model).train()
if rank == 0:
    ddp.shell("ls")
