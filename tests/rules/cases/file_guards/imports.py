# Functions that look at files are known by their import.

# case: from os.path import exists
from os.path import exists
from trl import SFTTrainer
if exists("d"):
    x = load(1)
# output
from os.path import exists
from trl import SFTTrainer
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    if exists("d"):
        x = load(1)

# case: import os.path as osp
import os.path as osp
from trl import SFTTrainer
if osp.isdir("d"):
    x = load(1)
# output
import os.path as osp
from trl import SFTTrainer
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    if osp.isdir("d"):
        x = load(1)

# case: from glob import glob as find
from glob import glob as find
from trl import SFTTrainer
if find("*.txt"):
    x = load(1)
# output
from glob import glob as find
from trl import SFTTrainer
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    if find("*.txt"):
        x = load(1)

# last cell
trainer = SFTTrainer(model)
trainer.train()
