# A text with a time in it, and an id, is made on rank 0, whatever it is used for.

# case: the output folder in the training arguments
import os, time, uuid
import datetime as dt
from datetime import datetime
from trl import SFTConfig, SFTTrainer
args = SFTConfig(output_dir=f"out/{time.time()}", learning_rate=1e-4)
trainer = SFTTrainer(model)
trainer.train()
# output
import os, time, uuid
import datetime as dt
from datetime import datetime
from trl import SFTConfig, SFTTrainer
args = SFTConfig(output_dir=ddp.from_main_process(lambda: f"out/{time.time()}"), learning_rate=1e-4)
trainer = SFTTrainer(model)
trainer.train()

# case: in the body of a class
import os, time, uuid
from datetime import datetime
from trl import SFTConfig, SFTTrainer
class CFG:
    out = "exp_" + datetime.now().strftime("%Y%m%d")
os.makedirs(CFG.out, exist_ok=True)
trainer = SFTTrainer(model)
trainer.train()
# output
import os, time, uuid
from datetime import datetime
from trl import SFTConfig, SFTTrainer
class CFG:
    out = ddp.from_main_process(lambda: "exp_" + datetime.now().strftime("%Y%m%d"))
os.makedirs(CFG.out, exist_ok=True)
trainer = SFTTrainer(model)
trainer.train()

# case: in the body of a class, with another name of it, which the lambda is given
import os, time, uuid
from datetime import datetime
from trl import SFTConfig, SFTTrainer
class CFG:
    name = "exp"
    out: str = f"{name}_{datetime.now():%Y%m%d}"
    logs = os.path.join(name, time.strftime("%H%M"))
trainer = SFTTrainer(model)
trainer.train()
# output
import os, time, uuid
from datetime import datetime
from trl import SFTConfig, SFTTrainer
class CFG:
    name = "exp"
    out: str = ddp.from_main_process(lambda name=name: f"{name}_{datetime.now():%Y%m%d}")
    logs = ddp.from_main_process(lambda name=name: os.path.join(name, time.strftime("%H%M")))
trainer = SFTTrainer(model)
trainer.train()

# case: in an attribute and in an item
import os, time, uuid
from datetime import datetime
from trl import SFTConfig, SFTTrainer
class CFG: pass
CFG.out = f"run_{datetime.now():%H%M}"
settings = {"model": model, "out": f"run-{time.time_ns()}"}
settings["logs"] = f"logs-{time.time_ns()}"
trainer = SFTTrainer(model)
trainer.train()
# output
import os, time, uuid
from datetime import datetime
from trl import SFTConfig, SFTTrainer
class CFG: pass
CFG.out = ddp.from_main_process(lambda: f"run_{datetime.now():%H%M}")
settings = {"model": model, "out": ddp.from_main_process(lambda: f"run-{time.time_ns()}")}
settings["logs"] = ddp.from_main_process(lambda: f"logs-{time.time_ns()}")
trainer = SFTTrainer(model)
trainer.train()

# case: below a condition
import os, time, uuid
from datetime import datetime
from trl import SFTConfig, SFTTrainer
if not debug:
    out = f"run_{datetime.now():%H%M}"
trainer = SFTTrainer(model)
trainer.train()
# output
import os, time, uuid
from datetime import datetime
from trl import SFTConfig, SFTTrainer
if not debug:
    out = ddp.from_main_process(lambda: f"run_{datetime.now():%H%M}")
trainer = SFTTrainer(model)
trainer.train()

# case: in a function and a method that every rank calls
import os, time, uuid
from datetime import datetime
from trl import SFTConfig, SFTTrainer
class Run:
    def __init__(self, name):
        self.stamp = time.strftime("%H%M")
        self.out = f"{name}_{self.stamp}"
def fit(folder):
    os.makedirs(folder, exist_ok=True)
def main():
    out = f"runs/{time.time_ns()}"
    fit(out)
main()
fit(Run("a").out)
trainer = SFTTrainer(model)
trainer.train()
# output
import os, time, uuid
from datetime import datetime
from trl import SFTConfig, SFTTrainer
class Run:
    def __init__(self, name):
        self.stamp = ddp.from_main_process(lambda: time.strftime("%H%M"))
        self.out = f"{name}_{self.stamp}"
def fit(folder):
    os.makedirs(folder, exist_ok=True)
def main():
    out = ddp.from_main_process(lambda: f"runs/{time.time_ns()}")
    fit(out)
main()
fit(Run("a").out)
trainer = SFTTrainer(model)
trainer.train()

# case: in what a function returns
import os, time, uuid
from datetime import datetime
from trl import SFTConfig, SFTTrainer
def timestamp():
    return datetime.now().strftime("%H%M")
def run_dir(root):
    return f"{root}_{timestamp()}"
out = run_dir("run")
args = SFTConfig(output_dir=out)
trainer = SFTTrainer(model)
trainer.train()
# output
import os, time, uuid
from datetime import datetime
from trl import SFTConfig, SFTTrainer
def timestamp():
    return ddp.from_main_process(lambda: datetime.now().strftime("%H%M"))
def run_dir(root):
    return f"{root}_{timestamp()}"
out = run_dir("run")
args = SFTConfig(output_dir=out)
trainer = SFTTrainer(model)
trainer.train()

# case: in the default of a field, and of a parameter
import os, time, uuid
from datetime import datetime
from trl import SFTConfig, SFTTrainer
from dataclasses import dataclass, field
@dataclass
class Config:
    out: str = field(default_factory=lambda: f"run_{time.time_ns()}")
def fit(config: Config, logs=f"logs_{time.time_ns()}"):
    os.makedirs(config.out)
fit(Config())
trainer = SFTTrainer(model)
trainer.train()
# output
import os, time, uuid
from datetime import datetime
from trl import SFTConfig, SFTTrainer
from dataclasses import dataclass, field
@dataclass
class Config:
    out: str = field(default_factory=lambda: ddp.from_main_process(lambda: f"run_{time.time_ns()}"))
def fit(config: Config, logs=ddp.from_main_process(lambda: f"logs_{time.time_ns()}")):
    os.makedirs(config.out)
fit(Config())
trainer = SFTTrainer(model)
trainer.train()

# case: in the default of a field of which a library makes objects, on all ranks
import os, time
from dataclasses import dataclass, field
from transformers import HfArgumentParser
from trl import SFTConfig, SFTTrainer
@dataclass
class Config:
    out: str = field(default_factory=lambda: f"run_{time.time_ns()}")
(config,) = HfArgumentParser(Config).parse_args_into_dataclasses([])
trainer = SFTTrainer(model, args=SFTConfig(config.out))
trainer.train()
# output
import os, time
from dataclasses import dataclass, field
from transformers import HfArgumentParser
from trl import SFTConfig, SFTTrainer
@dataclass
class Config:
    out: str = field(default_factory=lambda: ddp.from_main_process(lambda: f"run_{time.time_ns()}"))
(config,) = HfArgumentParser(Config).parse_args_into_dataclasses([])
trainer = SFTTrainer(model, args=SFTConfig(config.out))
trainer.train()

# case: in an argument of a function and in settings
import os, time, uuid
from datetime import datetime
from trl import SFTConfig, SFTTrainer
from types import SimpleNamespace
def fit(folder):
    os.makedirs(folder)
fit(f"run_{time.time_ns()}")
cfg = SimpleNamespace(out=f"run_{time.time_ns()}", lr=0.1)
os.makedirs(cfg.out)
trainer = SFTTrainer(model)
trainer.train()
# output
import os, time, uuid
from datetime import datetime
from trl import SFTConfig, SFTTrainer
from types import SimpleNamespace
def fit(folder):
    os.makedirs(folder)
fit(ddp.from_main_process(lambda: f"run_{time.time_ns()}"))
cfg = SimpleNamespace(out=ddp.from_main_process(lambda: f"run_{time.time_ns()}"), lr=0.1)
os.makedirs(cfg.out)
trainer = SFTTrainer(model)
trainer.train()

# case: a walrus in a name, and a name of the class around
import time
from trl import SFTConfig, SFTTrainer
name = (stamp := f"run-{time.time()}")
class Setup:
    run = "run"
    args = SFTConfig(output_dir=f"{run}/{time.time()}")
trainer = SFTTrainer(model, args=Setup.args)
trainer.train()
# output
import time
from trl import SFTConfig, SFTTrainer
name = (stamp := ddp.from_main_process(lambda: f"run-{time.time()}"))
class Setup:
    run = "run"
    args = SFTConfig(output_dir=ddp.from_main_process(lambda run=run: f"{run}/{time.time()}"))
trainer = SFTTrainer(model, args=Setup.args)
trainer.train()

# case: the system's random numbers
import os, secrets
from trl import SFTConfig, SFTTrainer
tag = secrets.token_hex(4)
def folder(letters):
    name = "".join(secrets.choice(letters) for _ in range(4))
    return os.path.join("a", name)
os.makedirs(f"{folder('ab')}/{tag}")
trainer = SFTTrainer(model)
trainer.train()
# output
import os, secrets
from trl import SFTConfig, SFTTrainer
tag = ddp.from_main_process(lambda: secrets.token_hex(4))
def folder(letters):
    name = ddp.from_main_process(lambda: "".join(secrets.choice(letters) for _ in range(4)))
    return os.path.join("a", name)
os.makedirs(f"{folder('ab')}/{tag}")
trainer = SFTTrainer(model)
trainer.train()

# case: the name and the id of W&B's run, which is rank 0's
import wandb
from trl import SFTConfig, SFTTrainer
run = wandb.init()
folder = f"runs/{wandb.run.name}"
number = run.id
args = SFTConfig(output_dir=f"out/{run.name}")
trainer = SFTTrainer(model)
trainer.train()
torch.save(model, f"{folder}/{run.name}")
# output
import wandb
from trl import SFTConfig, SFTTrainer
run = wandb.init()
folder = ddp.from_main_process(lambda: f"runs/{wandb.run.name}")
number = ddp.from_main_process(lambda: run.id)
args = SFTConfig(output_dir=ddp.from_main_process(lambda: f"out/{run.name}"))
trainer = SFTTrainer(model)
trainer.train()
torch.save(model, f"{folder}/{run.name}")

# case: in an argument of a library's function and method
import argparse, os, time
from datetime import datetime
from pathlib import Path
from library import Runner, files
from trl import SFTTrainer
parser = argparse.ArgumentParser()
parser.add_argument("--run", default=f"runs/{time.time()}")
runner = Runner(Path("logs") / datetime.now().strftime("%H%M"))
runner.fit(logdir="logs/" + str(datetime.now().timestamp()))
os.environ.setdefault("RUN", str(time.time_ns()))
files.write(f"logs/{time.time()}")
trainer = SFTTrainer(model)
trainer.train()
# output
import argparse, os, time
from datetime import datetime
from pathlib import Path
from library import Runner, files
from trl import SFTTrainer
parser = argparse.ArgumentParser()
parser.add_argument("--run", default=ddp.from_main_process(lambda: f"runs/{time.time()}"))
runner = Runner(ddp.from_main_process(lambda: Path("logs") / datetime.now().strftime("%H%M")))
runner.fit(logdir=ddp.from_main_process(lambda: "logs/" + str(datetime.now().timestamp())))
os.environ.setdefault("RUN", ddp.from_main_process(lambda: str(time.time_ns())))
files.write(ddp.from_main_process(lambda: f"logs/{time.time()}"))
trainer = SFTTrainer(model)
trainer.train()

# case: a number that becomes a part of a text elsewhere
import hashlib, json, time
from datetime import datetime
from library import write
from trl import SFTTrainer
start = time.time()
write(f"logs/{start}")
settings = {"lr": 0.1, "at": time.time()}
name = hashlib.md5(json.dumps(settings).encode()).hexdigest()
def namer(root):
    made = time.time_ns()
    return lambda tag: f"{root}/{made}_{tag}"
path = namer("runs")("a")
class Run:
    def __init__(self):
        self.at = datetime.now()
    def __fspath__(self):
        return f"runs/{self.at:%H%M}"
run = Run()
trainer = SFTTrainer(model)
trainer.train()
# output
import hashlib, json, time
from datetime import datetime
from library import write
from trl import SFTTrainer
start = ddp.from_main_process(lambda: time.time())
write(f"logs/{start}")
settings = {"lr": 0.1, "at": ddp.from_main_process(lambda: time.time())}
name = hashlib.md5(json.dumps(settings).encode()).hexdigest()
def namer(root):
    made = ddp.from_main_process(lambda: time.time_ns())
    return lambda tag: f"{root}/{made}_{tag}"
path = namer("runs")("a")
class Run:
    def __init__(self):
        self.at = ddp.from_main_process(lambda: datetime.now())
    def __fspath__(self):
        return f"runs/{self.at:%H%M}"
run = Run()
trainer = SFTTrainer(model)
trainer.train()

# case: in what runs when an object is made, or a context is entered
import os, time
from contextlib import contextmanager
from dataclasses import dataclass
from trl import SFTTrainer
@dataclass
class Config:
    run: str = None
    def __post_init__(self):
        self.run = self.run or f"runs/{time.time()}"
config = Config()
@contextmanager
def experiment(root):
    run = f"{root}/{time.time_ns()}"
    yield run
with experiment("runs") as folder:
    trainer = SFTTrainer(model)
    trainer.train()
# output
import os, time
from contextlib import contextmanager
from dataclasses import dataclass
from trl import SFTTrainer
@dataclass
class Config:
    run: str = None
    def __post_init__(self):
        self.run = ddp.from_main_process(lambda: self.run or f"runs/{time.time()}")
config = Config()
@contextmanager
def experiment(root):
    run = ddp.from_main_process(lambda: f"{root}/{time.time_ns()}")
    yield run
with experiment("runs") as folder:
    trainer = SFTTrainer(model)
    trainer.train()

# case: beside what only the ranks together can compute
import time
from library import ask
from trl import SFTTrainer
name = f"{ask()}-{time.time()}"
trainer = SFTTrainer(model)
trainer.train()
# output
import time
from library import ask
from trl import SFTTrainer
name = f"{ask()}-{ddp.from_main_process(lambda: time.time())}"
trainer = SFTTrainer(model)
trainer.train()

# case: of a function whose text may only be printed
import time
from datetime import datetime
from trl import SFTTrainer
def now():
    return datetime.now().strftime("%H:%M:%S")
def log(message):
    stamp = time.strftime("%H:%M:%S")
    print(f"[{stamp}] {message}")
log("start")
print(now(), "begins")
trainer = SFTTrainer(model)
trainer.train()
# output
import time
from datetime import datetime
from trl import SFTTrainer
def now():
    return ddp.from_main_process(lambda: datetime.now().strftime("%H:%M:%S"))
def log(message):
    stamp = ddp.from_main_process(lambda: time.strftime("%H:%M:%S"))
    print(f"[{stamp}] {message}")
log("start")
print(now(), "begins")
trainer = SFTTrainer(model)
trainer.train()

# case: for each training and each epoch, not for each step
import time
import torch
for rate in rates:
    run = f"runs/{time.time()}"
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for epoch in range(3):
        stamp = time.strftime("%H%M%S")
        for step, batch in enumerate(loader):
            at = time.strftime("%H:%M:%S")
            rows.append(at)
            model(batch).backward()
            optimizer.step()
            if step % 100 == 0:
                path = f"{run}/{time.time()}"
# output
import time
import torch
for rate in rates:
    run = ddp.from_main_process(lambda: f"runs/{time.time()}")
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for epoch in range(3):
        stamp = ddp.from_main_process(lambda: time.strftime("%H%M%S"))
        for step, batch in enumerate(loader):
            at = time.strftime("%H:%M:%S")
            rows.append(at)
            model(batch).backward()
            optimizer.step()
            if step % 100 == 0:
                path = ddp.from_main_process(lambda: f"{run}/{time.time()}")
