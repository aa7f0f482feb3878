# TensorBoard's event files: a writer of each rank would leave one. Modules that are imported later get the class, too.

# case: with a folder, and without
import torch
from torch.utils import tensorboard
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("runs/a")
other = tensorboard.SummaryWriter()
# output
ddp.event_writer("torch.utils.tensorboard.SummaryWriter")  # nb2ddp: only rank 0 writes event files
import torch
from torch.utils import tensorboard
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("runs/a")
other = tensorboard.SummaryWriter()

# case: the base of a class of the notebook's own, below what stands above the init block
import os
os.environ["A"] = "1"
import tensorboardX
class Writer(tensorboardX.SummaryWriter):
    pass
writer = Writer("runs/a")
# output
import os
os.environ["A"] = "1"
ddp.event_writer("tensorboardX.SummaryWriter")  # nb2ddp: only rank 0 writes event files
import tensorboardX
class Writer(tensorboardX.SummaryWriter):
    pass
writer = Writer("runs/a")

# case: a module that imports one that opens them, before anything else
get_ipython().run_cell_magic("writefile", "logs/files.py", "from torch.utils.tensorboard import SummaryWriter\ndef make():\n    return SummaryWriter()")
# %%
from logs import files
writer = files.make()
# output
ddp.event_writer("torch.utils.tensorboard.SummaryWriter")  # nb2ddp: only rank 0 writes event files
get_ipython().run_cell_magic("writefile", "logs/files.py", "from torch.utils.tensorboard import SummaryWriter\ndef make():\n    return SummaryWriter()")
# %%
from logs import files
writer = files.make()

# case: another class of this name
from mine import SummaryWriter
writer = SummaryWriter("runs/a")

# last cell
from trl import SFTTrainer
t = SFTTrainer(llm)
t.train()
