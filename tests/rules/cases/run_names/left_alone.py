# What is no name of a run, or needs more than the clock, is left alone.

# first cell
import os, time, uuid
import datetime as dt
from datetime import datetime
from trl import SFTConfig, SFTTrainer

# case: a time
start = time.time()

# case: a date
start = datetime.now()

# case: a duration
took = time.time() - start

# case: a time that is printed
print(f"{time.time():.1f}")

# case: a name without a time
name = f"run-{number}"

# case: a name in a function
def name():
    text = f"{time.time()}"
    return text

# case: a duration, as text
took = f"{time.time() - start:.1f} s"

# case: a duration that becomes a text in steps
begun = time.perf_counter()
spent = time.perf_counter() - begun
minutes, seconds = divmod(spent, 60)
line = f"{minutes} min {seconds:.1f} s, {time.strftime('%H:%M:%S', time.gmtime(time.time() - start))}"

# case: a time that is recorded at once, or compared as text
with open("log") as log:
    log.write(f"start at {time.time()}")
logger.info(f"start at {time.strftime('%H:%M')}")
is_late = time.strftime("%H") == "23"

# case: in a line that only rank 0 runs
import torch
torch.save(settings, f"runs/{time.time()}.pt")
os.makedirs(f"runs/{uuid.uuid4()}")

# case: below a test of a Trainer's, which rank 0 alone passes, in each step, and in a task
from transformers import TrainerCallback
class Keep(TrainerCallback):
    def on_log(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.at = time.strftime("%H:%M:%S")
    def on_step_end(self, args, state, control, **kwargs):
        self.last = time.strftime("%H:%M:%S")
async def task():
    return time.strftime("%H:%M:%S")
async def tasks():
    return [await task(), await task()]

# case: a name for each row, which would ask rank 0 as often
def ident(row):
    return f"{row}-{uuid.uuid4()}"
rows = [ident(row) for row in table]
for row in table:
    path = f"{row}-{uuid.uuid4()}"
    os.makedirs(path)

# case: in an object of a library, which one rank may make alone
from library import Saver
def stamp():
    return time.strftime("%H%M")
class Save(Saver):
    def on_save(self, args, state, control, **kwargs):
        path = f"{args.output_dir}/{stamp()}-{time.time_ns()}.pt"
        os.makedirs(path)
stamp()

# case: in a worker of a DataLoader, and in a generator
from torch.utils.data import Dataset
class Rows(Dataset):
    def __getitem__(self, index):
        path = f"row_{time.time_ns()}"
        return open(path)
def batches():
    path = f"batch_{time.time_ns()}"
    yield open(path)
for batch in batches():
    pass

# case: a class of which each row is an object, in a worker of a DataLoader say
from dataclasses import dataclass, field
from torch.utils.data import Dataset
@dataclass
class Row:
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
class Rows(Dataset):
    def __getitem__(self, index):
        return open(Row().key)
@dataclass
class Line:
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
lines = [open(Line().key) for row in table]

# case: a folder of this process alone
import tempfile
class Keeper:
    def __init__(self):
        self.folder = tempfile.mkdtemp()
        os.makedirs(os.path.join(self.folder, "best"))
keeper = Keeper()

# last cell
trainer = SFTTrainer(model)
trainer.train()
