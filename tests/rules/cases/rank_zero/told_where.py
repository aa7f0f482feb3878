# What a library is told to write, or keeps of a run's figures, rank 0 writes.

# first cell
from trl import SFTTrainer

# case: parts of a folder
import splitfolders
splitfolders.ratio("rows", output="parts", seed=1)
# output
import splitfolders
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        splitfolders.ratio("rows", output="parts", seed=1)

# case: a function of the notebook, and one that gets the model
import engine
def ratio(rows, output):
    return rows
ratio("rows", output="parts")
model = torch.nn.Linear(1, 1)
engine.warm_up(model, save_dir="parts")

# case: a tracker
import trackio
trackio.init(project="p")
# output
import trackio
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        trackio.init(project="p")

# case: a tracker's run, whose methods are only called
import clearml, swanlab
run = swanlab.init(project="p")
run.log({"rows": 3})
def train(rows):
    task = clearml.Task.init("p", "t")
    task.get_logger().report_scalar("rows", len(rows))
    return len(rows)
train([1])
# output
import clearml, swanlab
run = ddp.on_main_process(swanlab.init)(project="p")
run.log({"rows": 3})
def train(rows):
    task = ddp.on_main_process(clearml.Task.init)("p", "t")
    task.get_logger().report_scalar("rows", len(rows))
    return len(rows)
train([1])

# case: a tracker's run that goes through two functions, and one that gives what it is asked for
import comet_ml
def epoch(rows, run):
    run.log_metric("rows", len(rows))
    return len(rows)
def told(run):
    return run.count()
def fit(rows, run):
    total = epoch(rows, run)
    run.log_metric("total", total)
run, other = comet_ml.Experiment("p"), comet_ml.Experiment("q")
fit([1], run)
more = told(other)
other.log_metric("count", more + 1)
# output
import comet_ml
def epoch(rows, run):
    run.log_metric("rows", len(rows))
    return len(rows)
def told(run):
    with ddp.in_turn():  # nb2ddp: the ranks write one after another
        return run.count()
def fit(rows, run):
    total = epoch(rows, run)
    run.log_metric("total", total)
run, other = ddp.on_main_process(comet_ml.Experiment)("p"), comet_ml.Experiment("q")
fit([1], run)
more = told(other)
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        other.log_metric("count", more + 1)
# note, line 6: this writes on every rank, because its result is used
# note, line 10: this writes on every rank, because its result is used later

# case: a tracker's run in an attribute
import neptune
class Log:
    def __init__(self):
        self.run = neptune.init_run(project="p")
        self.run["settings"] = {"lr": 1}
    def add(self, loss):
        self.run["loss"].append(loss)
log = Log()
log.add(1.0)
# output
import neptune
class Log:
    def __init__(self):
        self.run = ddp.on_main_process(neptune.init_run)(project="p")
        self.run["settings"] = {"lr": 1}
    def add(self, loss):
        self.run["loss"].append(loss)
log = Log()
log.add(1.0)

# case: a run that is opened, or asked for, where a part of it is taken
from clearml import Task
logger = Task.init("p", "t").get_logger()
other = Task.current_task().get_logger()
logger.report_text("begins")
other.report_text("begins")
# output
from clearml import Task
logger = ddp.on_main_process(Task.init)("p", "t").get_logger()
other = ddp.on_main_process(Task.current_task)().get_logger()
logger.report_text("begins")
other.report_text("begins")

# case: a part of a tracker's run, whose methods are only called
from clearml import Task
task = Task.init("p", "t")
logger = task.get_logger()
logger.report_text("begins")
# output
from clearml import Task
task = ddp.on_main_process(Task.init)("p", "t")
logger = task.get_logger()
logger.report_text("begins")

# case: a tracker's run of which a value is made
import swanlab
run = swanlab.init(project="p")
settings = dict(run.config)
# note, line 2: this writes on every rank, because its result is used later

# case: a tracker's run whose name, say, is read
import neptune
run = neptune.init_run(project="p")
key = run["sys/id"].fetch()
print(run.hash, f"runs/{key}")
# output
import neptune
run = ddp.on_main_process(neptune.init_run)(project="p")
key = ddp.from_main_process(lambda: run["sys/id"].fetch())
print(ddp.from_main_process(lambda: run.hash), f"runs/{key}")

# case: a run whose name is read where a rank may not come
import neptune
run = neptune.init_run(project="p")
class Rows:
    def __getitem__(self, i):
        return run["sys/id"].fetch()
# note, line 2: this writes on every rank, because its result is used later
# note, line 5: this writes on every rank, because the rest of its function needs it

# case: a run that the notebook's functions and classes get
import neptune
def train(model, run=None):
    if run is not None:
        run["begins"] = True
class Learner:
    def __init__(self, model, run):
        self.model, self.run = model, run
    def add(self, loss):
        self.run["loss"].append(loss)
with neptune.init_run(project="p") as other:
    other["begins"] = True
run = neptune.init_run(project="p")
train(1, run=run)
learner = Learner(1, run)
learner.add(1.0)
# output
import neptune
def train(model, run=None):
    if run is not None:
        run["begins"] = True
class Learner:
    def __init__(self, model, run):
        self.model, self.run = model, run
    def add(self, loss):
        self.run["loss"].append(loss)
with ddp.on_main_process(neptune.init_run)(project="p") as other:
    other["begins"] = True
run = ddp.on_main_process(neptune.init_run)(project="p")
train(1, run=run)
learner = Learner(1, run)
learner.add(1.0)

# case: a run of which a function makes a value, and one that a library gets
import neptune
def count(run):
    return run["begins"] + 1
run = neptune.init_run(project="p")
other = neptune.init_run(project="p")
count(run)
model = SFTTrainer(model, train_dataset=rows, callbacks=[Logger(other)])
# note, line 4: this writes on every rank, because its result is used later

# case: a store of runs that a package chooses
import dagshub
dagshub.init("rows", "me", mlflow=True)
# output
import dagshub
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
    if is_main:
        dagshub.init("rows", "me", mlflow=True)

# case: a tracker's run whose settings are read through its module
import swanlab
run = swanlab.init(project="p", config={"lr": 0.1})
settings = swanlab.config
print(settings.lr)
# note, line 2: this writes on every rank, because its result is used later

# case: a tracker's run that has another name where a value is made of it
import trackio
class Session:
    def __init__(self):
        self.run = trackio.init(project="p", config={"lr": 0.1})
session = Session()
optimizer = SGD(lr=session.run.config["lr"])
# output
import trackio
class Session:
    def __init__(self):
        with ddp.in_turn():  # nb2ddp: the ranks write one after another
            self.run = trackio.init(project="p", config={"lr": 0.1})
session = Session()
optimizer = SGD(lr=session.run.config["lr"])
# note, line 4: this writes on every rank, because its result is used

# case: a tracker's run that is given what its module has
import clearml
class Session:
    def __init__(self):
        self.run = clearml.Task.init("p", task_type=clearml.Task.TaskTypes.training)
Session().run.set_comment("begins")
# output
import clearml
class Session:
    def __init__(self):
        self.run = ddp.on_main_process(clearml.Task.init)("p", task_type=clearml.Task.TaskTypes.training)
Session().run.set_comment("begins")

# case: a block of a tracker's run that only names what is logged in it
import comet_ml
experiment = comet_ml.Experiment(project_name="p")
with experiment.train():
    trainer = SFTTrainer(model, train_dataset=rows)
    trainer.train()
# output
import comet_ml
experiment = ddp.on_main_process(comet_ml.Experiment)(project_name="p")
with experiment.train():
    trainer = SFTTrainer(model, train_dataset=rows)
    trainer.train()

# case: a run that is asked for by its name, and read, and data that a tracker keeps
import comet_ml
from clearml import Dataset, Task
task = Task.init("p", "t")
settings = task.connect({"source": "a"})
source = Task.get_task(settings["source"])
rows = load(source.artifacts["rows"].get())
scores = comet_ml.API().get_metrics("b")
folder = Dataset.get(dataset_name="c").get_local_copy()
task.get_logger().report_text("begins")
source.upload_artifact("lengths", [1])
# output
import comet_ml
from clearml import Dataset, Task
task = ddp.on_main_process(Task.init)("p", "t")
settings = ddp.from_main_process(lambda: task.connect({"source": "a"}))
source = Task.get_task(settings["source"])
rows = load(source.artifacts["rows"].get())
scores = comet_ml.API().get_metrics("b")
folder = Dataset.get(dataset_name="c").get_local_copy()
task.get_logger().report_text("begins")
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        source.upload_artifact("lengths", [1])

# case: a tracker's run that takes the name of its module, in two cells
import visdom as plots
plots = plots.Visdom(env="a")
plots.text("begins")
# %%
import visdom as plots
plots = plots.Visdom(env="b")
plots.text("begins")
# output
import visdom as plots
plots = ddp.on_main_process(plots.Visdom)(env="a")
plots.text("begins")
# %%
import visdom as plots
plots = ddp.on_main_process(plots.Visdom)(env="b")
plots.text("begins")

# case: one that a function returns
import comet_ml
def opened():
    return comet_ml.Experiment(project_name="p")
experiment = opened()
# output
import comet_ml
def opened():
    return ddp.on_main_process(comet_ml.Experiment)(project_name="p")
experiment = opened()

# case: a file is synchronized, which other ranks do not write
import os
log = open("log", "w")
log.write("x")
os.fsync(log.fileno())
trainer = SFTTrainer(model)
# output
import os
log = open("log" if ddp.is_main_process else os.devnull, "w")
log.write("x")
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        os.fsync(log.fileno())
trainer = SFTTrainer(model)

# case: a callback of a tracker, which a Trainer starts
from swanlab.integration.transformers import SwanLabCallback
callback = SwanLabCallback(project="p")

# case: Visdom, whose windows are named later
from visdom import Visdom
plots = Visdom(port=8097)
assert plots.check_connection()
window = plots.line(X=[0], Y=[0])
def note(window, value):
    plots.line(X=[1], Y=[value], win=window, update="append")
note(window, 3)
# output
from visdom import Visdom
plots = ddp.on_main_process(Visdom)(port=8097)
assert plots.check_connection()
window = plots.line(X=[0], Y=[0])
def note(window, value):
    plots.line(X=[1], Y=[value], win=window, update="append")
note(window, 3)

# case: names that say that something is saved, of an object and a function out of sight
from timm.utils import CheckpointSaver
from helpers import save_ckpt
class Notes:
    def save_results(self, rows):
        self.rows = rows
saver, notes = CheckpointSaver(model, checkpoint_dir="out"), Notes()
saver.save_checkpoint(0, metric=1.0)
best, epoch = saver.save_checkpoint(1, metric=0.5)
save_ckpt(model, "last")
notes.save_results([best, epoch])
net = torch.nn.Linear(1, 1)
saver.save_images(net(best), epoch)
saver.save_results(net, best)
trainer = SFTTrainer(notes.rows)
# output
from timm.utils import CheckpointSaver
from helpers import save_ckpt
class Notes:
    def save_results(self, rows):
        self.rows = rows
saver, notes = CheckpointSaver(model, checkpoint_dir="out"), Notes()
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        saver.save_checkpoint(0, metric=1.0)
best, epoch = ddp.from_main_process(lambda: saver.save_checkpoint(1, metric=0.5))
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        save_ckpt(model, "last")
notes.save_results([best, epoch])
net = torch.nn.Linear(1, 1)
saver.save_images(net(best), epoch)
saver.save_results(net, best)
trainer = SFTTrainer(notes.rows)

# case: a name that says that files are moved
from d2l import torch as d2l
def prepare(folder):
    d2l.reorg_test(folder)
prepare("dogs")
# output
from d2l import torch as d2l
def prepare(folder):
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            d2l.reorg_test(folder)
prepare("dogs")

# last cell
trainer = SFTTrainer(model, train_dataset=rows)
trainer.train()

# case: a model that is made with the settings of a tracker's run
from clearml import Task
import torch
task = Task.init("p", "t")
config = task.connect({"width": 8})
model = torch.nn.Linear(4, config["width"])
print(sum(p.numel() for p in model.parameters()))
# output
from clearml import Task
import torch
task = ddp.on_main_process(Task.init)("p", "t")
config = ddp.from_main_process(lambda: task.connect({"width": 8}))
model = torch.nn.Linear(4, config["width"])
print(sum(p.numel() for p in model.parameters()))
