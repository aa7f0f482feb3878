# A command below the notebook's own test of the rank: the other ranks would be waited for in vain.

# first cell
import os
from trl import SFTTrainer
rank = torch.distributed.get_rank()

# case: before training
if rank == 0:
    !wget https://example.org/data.json
SFTTrainer(model).train()
# decline, line 2: `rank == 0` lets only some ranks reach a command that the script runs once, on rank 0, by itself; take the condition away

# case: after training
SFTTrainer(model).train()
if rank == 0:
    !ls
# output
SFTTrainer(model).train()
if rank == 0:
    ddp.shell("ls")

# case: in a function that is called after training
def show():
    !ls
SFTTrainer(model).train()
if rank == 0:
    show()
# output
def show():
    ddp.shell("ls")
SFTTrainer(model).train()
if rank == 0:
    show()

# case: in a function that one rank calls before training, too
def show():
    !ls
if not rank:
    show()
SFTTrainer(model).train()
if rank == 0:
    show()
# decline, line 2: `not rank` lets only some ranks reach a command...

# case: behind the return of the other ranks
def fetch():
    if rank != 0:
        return
    !wget https://example.org/data.json
fetch()
SFTTrainer(model).train()
# decline, line 4: `rank != 0` lets only some ranks reach a command...
