# TensorBoard's event files: a writer of each rank would leave one.

# first cell
import torch
from torch.utils import tensorboard
from torch.utils.tensorboard import SummaryWriter
from trl import SFTTrainer

# case: with a folder, and without
writer = SummaryWriter("runs/a")
other = tensorboard.SummaryWriter()
# output
writer = ddp.event_writer(SummaryWriter)("runs/a")
other = ddp.event_writer(tensorboard.SummaryWriter)()

# case: in a class, and in a with
class Log:
    def __init__(self, folder):
        self.writer = SummaryWriter(log_dir=folder)
log = Log("a")
with SummaryWriter() as writer:
    writer.add_scalar("start", 1, 0)
# output
class Log:
    def __init__(self, folder):
        self.writer = ddp.event_writer(SummaryWriter)(log_dir=folder)
log = Log("a")
with ddp.event_writer(SummaryWriter)() as writer:
    writer.add_scalar("start", 1, 0)

# case: the base of a class of the notebook's own
class Writer(SummaryWriter):
    pass
writer = Writer("runs/a")
# output
class Writer(ddp.event_writer(SummaryWriter)):
    pass
writer = Writer("runs/a")

# case: another class of this name
from mine import SummaryWriter
writer = SummaryWriter("runs/a")

# last cell
t = SFTTrainer(llm)
t.train()
