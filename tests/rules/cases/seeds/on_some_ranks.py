# Random numbers that some ranks alone draw are noted, since the others' generators stay where they are.

# first cell
import os
import random
import torch
import numpy as np
from transformers import Trainer
rank = torch.distributed.get_rank()
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)

# last cell
Trainer(model, args).train()

# case: of each generator
if rank == 0:
    x = torch.randn(3)
if not rank:
    i = np.random.rand()
if rank % 2:
    r = random.random()
    s = random.random()
# note, line 2: `rank == 0` lets some ranks alone draw these random numbers, and the ranks' generators differ from here on; draw them on every rank, above the test
# note, line 4: `not rank` lets some ranks alone draw these random numbers, ...
# note, line 6: `rank % 2` lets some ranks alone draw these random numbers, ...

# case: a text
if rank == 0:
    print(tokenizer.decode(model.generate(prompt, do_sample=True)[0]))
# note, line 2: `rank == 0` lets some ranks alone draw these random numbers, ...

# case: a generator of their own, a text without draws, all ranks
if rank == 0:
    x = torch.randn(3, generator=g)
    print(tokenizer.decode(model.generate(prompt, do_sample=False)[0]))
y = torch.randn(3)
if rank >= 0:
    z = torch.randn(3)
