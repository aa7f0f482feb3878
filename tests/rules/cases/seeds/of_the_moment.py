# A seed that is a time, or that the system draws, is rank 0's on every rank.

# first cell
import random, time
import numpy as np
import torch
from datetime import datetime
from trl import SFTTrainer

# case: the time
random.seed(time.time())
torch.manual_seed(int(time.time()))
# output
random.seed(ddp.from_main_process(lambda: time.time()))
torch.manual_seed(ddp.from_main_process(lambda: int(time.time())))

# case: a name, and a keyword
now = int(time.time()) % 1000
a, b = split(rows, random_state=now)
# output
now = int(time.time()) % 1000
a, b = split(rows, random_state=ddp.from_main_process(lambda: now))

# case: what the system draws, which the rule run-names takes from rank 0
import secrets
g = torch.Generator().manual_seed(secrets.randbits(32))

# case: in a function that all ranks call
def pick(rows):
    random.seed(datetime.now().microsecond)
    return random.choice(rows)
row = pick(rows)
# output
def pick(rows):
    random.seed(ddp.from_main_process(lambda: datetime.now().microsecond))
    return random.choice(rows)
row = pick(rows)

# case: a number, and a function that a library calls
random.seed(3)
def seed_worker(number):
    np.random.seed(int(time.time()) + number)
loader = torch.utils.data.DataLoader(rows, worker_init_fn=seed_worker)

# last cell
trainer = SFTTrainer(model, train_dataset=rows)
trainer.train()
