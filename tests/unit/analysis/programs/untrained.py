# What is missing in a notebook that does not train, and in which cell: its sentence has these words.

# case: nothing at all
# no code
# answer: hold no code
# answer: no cell

# case: comments and a text
# later
# %%
"""About this."""
# answer: hold no code
# answer: no cell

# case: pandas
import os
import pandas as pd
# %%
df = pd.read_csv('a.csv')
df.describe()
# answer: sees no training here that it could convert: no Trainer that it knows, no loop with backward(), and no fit()
# answer: no cell

# case: no package
x = 1
print(x)
# answer: no Trainer that it knows, no loop with backward()
# answer: no cell

# case: Keras
from tensorflow import keras
# %%
model = keras.Sequential([])
# %%
model.fit(x, y)
# answer: trains with TensorFlow, which nb2ddp does not convert: make and compile the model under tf.distribute
# answer: cell 3

# case: Keras alone
import keras
# %%
keras.Sequential([]).fit(x)
# answer: trains with Keras
# answer: cell 2

# case: a branch of another framework
import torch
backend = "torch"
net = torch.nn.Linear(4, 1)
# %%
if backend == "tensorflow":
    import tensorflow as tf
    with tf.GradientTape() as tape:
        loss = net(x)
else:
    print(net(x))
# answer: it makes a model here
# answer: cell 1

# case: JAX
import jax
import optax
# %%
g = jax.grad(f)
# answer: trains with JAX
# answer: cell 2

# case: Lightning
import lightning as L
import torch
# %%
t = [L.Trainer()]
t[0].fit(m)
# answer: trains with a Trainer of Lightning's that it cannot follow
# answer: cell 2

# case: Lightning without fit()
import lightning as L
trainer = L.Trainer()
trainer.test(m, loader)
# answer: this Trainer is made, and no call of its fit() is in sight
# answer: cell 1

# case: scikit-learn
from sklearn.svm import SVC
import pandas
# %%
SVC().fit(x, y)
# answer: trains with scikit-learn
# answer: cell 2

# case: a Trainer that no cell imports
from transformers import AutoModel
# %%
trainer = Trainer(model)
trainer.train()
# answer: nb2ddp does not see what `trainer.train()` trains with
# answer: cell 2

# case: labels that are encoded
from sklearn.preprocessing import LabelEncoder
# %%
e = LabelEncoder()
e.fit(y)
z = e.transform(y)
# answer: no loop with backward(), and no fit() of a model
# answer: no cell

# case: a job of a cloud, whose labels are encoded here
from azureml.core import Experiment
from sklearn.preprocessing import LabelEncoder
# %%
e = LabelEncoder()
e.fit(y)
z = e.transform(y)
# %%
run = Experiment(w, 'x').submit(job)
# answer: trains with a job of a cloud
# answer: cell 3

# case: a service's own fine-tuning, by its SDK
from vertexai.tuning import sft
# %%
sft.train(source_model="gemini", train_dataset="gs://rows.jsonl")
# answer: trains with a service's fine-tuning
# answer: cell 2

# case: gradients of torch.func
import torch
# %%
opt = torch.optim.SGD(model.parameters(), 0.1)
# %%
for x in data:
    opt.step()
# answer: no backward() gives the gradients that it steps with
# answer: cell 2

# case: a model of layers, and a Trainer that a module gives
import torch
from engines.simple import Trainer
# %%
net = torch.nn.Linear(8, 1)
print(net(x))
trainer = Trainer(net, x)
for epoch in range(3):
    trainer.advance()
# answer: it makes a model here, and no cell has a Trainer that it knows
# answer: cell 2

# case: inference
from transformers import AutoModelForCausalLM
# %%
m = AutoModelForCausalLM.from_pretrained('x')
# answer: it loads a model here, and no cell has a Trainer that it knows
# answer: cell 2

# case: inference, with a function of scikit-learn
from sklearn.metrics import f1_score
from transformers import AutoModelForCausalLM
# %%
m = AutoModelForCausalLM.from_pretrained('x')
# answer: it loads a model here
# answer: cell 2

# case: a pipeline
from transformers import pipeline
# %%
p = pipeline('text-generation')
p('x')
# answer: it loads a model here
# answer: cell 2

# case: Trainers that a comprehension starts
from trl import SFTTrainer
trainers = [SFTTrainer(model=m) for m in models]
# %%
found = [each.train() for each in trainers]
# answer: this SFTTrainer is made, and nb2ddp cannot tell what calls its train(): give it a name, and call train() of
# answer: cell 1

# case: a Trainer that is not started
from trl import SFTTrainer
# %%
trainer = SFTTrainer(model=m)
# %%
# trainer.train()
# answer: this SFTTrainer is made, and no call of its train() is in sight
# answer: cell 2

# case: a Trainer that a library starts
from trl import SFTTrainer
# %%
class C:
    def fit(self):
        t = SFTTrainer(m)
        t.train()
# answer: cannot follow the training of this SFTTrainer: its train() stands in a function that nb2ddp sees no call of
# answer: cell 2

# case: a script in a text
code = '''
import torch
for x in y:
    f(x).backward()
'''
# %%
open('t.py', 'w').write(code)
# answer: cannot follow the training of the code in this text: put its code into a cell
# answer: cell 1

# case: a module that trains with DDP
%%writefile t.py
import torch.distributed as dist
loss.backward()
# answer: start it with torchrun where it divides its batches itself
# answer: cell 1

# case: a Trainer that nothing makes
import torch
# %%
trainer.train()
# answer: nb2ddp does not see what `trainer.train()` trains with
# answer: cell 2

# case: no loop
import torch
# %%
loss = f(x)
loss.backward()
# answer: sees no training here that it could convert: this backward() is in no loop over batches
# answer: cell 2

# case: a loop in a class that nothing makes, below a step that nothing calls
import torch
# %%
def step(b):
    f(b).backward()
# %%
class Loop:
    def fit(self):
        for b in self.data:
            f(b).backward()
# answer: no call of the function that this backward() stands in is in sight
# answer: cell 3

# case: a function of a module that is called as models are fitted
from PIL import Image, ImageOps
# %%
x = ImageOps.fit(Image.open('a.png'), (3, 4))
# answer: no fit() of a model
# answer: no cell

# case: a Trainer of a library that is not known, by run()
from mingpt.trainer import Trainer
# %%
t = Trainer(model, data)
t.run()
# answer: calls `t.run()` of mingpt, whose training nb2ddp does not convert
# answer: cell 2

# case: a loop of one's own in a library's engine
import torch
from monai.engines import SupervisedTrainer
# %%
t = SupervisedTrainer()
# %%
t.run()
# answer: trains with MONAI's engines
# answer: cell 3

# case: a cell magic of one's own beside a framework
import keras
m = keras.Sequential([])
m.fit(x, y)
# %%
%%other torch
import torch
for x in y:
    f(x)
    f(x).backward()
# answer: trains with Keras
# answer: cell 1

# case: a loop in a module that is written
%%writefile 'engine.py'
for x in loader:
    model(x).backward()
# %%
import engine, timm
model = timm.create_model('a')
engine.train(model)
# answer: nb2ddp cannot follow the training of engine.py, which %%writefile writes here: put its code into a cell
# answer: cell 1

# case: a module that a launcher starts
%%writefile train.py
import torch
for x in loader:
    model(x).backward()
# %%
!accelerate launch --num_processes 1 train.py
# answer: it starts the processes itself: give it --multi_gpu --num_processes 2
# answer: cell 2

# case: a function of a file beside the notebook that trains an epoch
import torch
from engine import train_one_epoch
optimizer = torch.optim.SGD(model.parameters(), 0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
# %%
for epoch in range(3):
    train_one_epoch(model, optimizer, loader, epoch)
    schedule.step()
# answer: this notebook calls `train_one_epoch()` of engine, whose training nb2ddp does not convert
# answer: cell 2

# case: a program that is started by a name of its own
from subprocess import run
run(["cp", "train.yaml", "a"])
# answer: no Trainer that it knows, no loop with backward(), and no fit() of a model
# answer: no cell

# case: a function of a library that fits a Trainer of its own
import lib
trainer = lib.Trainer(model)
# %%
lib.fit_and_evaluate(trainer)
# answer: this notebook calls `lib.fit_and_evaluate()` of lib, whose training nb2ddp does not convert
# answer: cell 2

# case: gradients that an optimizer of TensorFlow's is given
import tensorflow as tf
optimizer = tf.train.AdamOptimizer()
# %%
optimizer.apply_gradients(gradients(model, rows))
# answer: trains with TensorFlow
# answer: cell 2

# case: a command that a name holds
steps = 10
command = f"accelerate launch {arguments(steps)} train_network.py"
# %%
!{command}
# answer: what trains here is the command `accelerate launch {arguments(steps)} train_network.py`
# answer: cell 2

# case: a command that a name holds, and a function splits
import subprocess
command = "python train.py"
# %%
subprocess.run(command.split())
# answer: what trains here is the command `python train.py`
# answer: cell 2

# case: a file that is written and started in several processes
import os
engine = os.path.join("work", "engine.py")
# %%
%%writefile {engine}
import torch
for x in loader:
    model(x).backward()
# %%
ranks = 2
!python -m torch.distributed.run --nproc_per_node {ranks} {engine}
# answer: {engine}`: it starts the processes itself, and trains in 2 as it is
# answer: cell 3

# case: a module without a loop
%%writefile engine.py
x = 1
# %%
from transformers import pipeline
# %%
p = pipeline('x')
# answer: it loads a model here
# answer: cell 3

# case: fit() of sentence-transformers
from sentence_transformers import SentenceTransformer
# %%
model = SentenceTransformer('a')
# %%
model.fit([(loader, loss)], epochs=2)
# answer: trains with Sentence Transformers' old fit(), which nb2ddp does not convert: its loop over batches
# answer: cell 3

# case: fit() of a model that a function makes
import sentence_transformers as st
# %%
def make():
    return st.SentenceTransformer('a')
# %%
model = make()
# %%
model.fit(train_objectives=[(loader, loss)])
# answer: trains with Sentence Transformers' old fit(), which nb2ddp does not convert: its loop over batches
# answer: cell 4

# case: a model of a library that is told how long it trains
import lib
model = lib.Model(table)
# %%
model.train(100)
# answer: this notebook calls `model.train()` of lib, whose training nb2ddp does not convert
# answer: cell 2

# case: a task of a library that gets its settings
import lib
task = lib.tasks.get("denoise")
params = lib.Params(epochs=50)
# %%
task.train(params)
# answer: this notebook calls `task.train()` of lib, whose training nb2ddp does not convert
# answer: cell 2

# case: a model of a library that is told its mode
import lib
model = lib.Model(table)
# %%
model.train(True)
model.train(mode=False)
# answer: no Trainer that it knows, no loop with backward(), and no fit() of a model
# answer: no cell

# case: a runner that is told to train
from lib import Runner
runner = Runner()
# %%
runner.run({"train": True})
# answer: this notebook calls `runner.run()` of lib, whose training nb2ddp does not convert
# answer: cell 2

# case: a recipe that another call runs, after a call that trains nothing
import nemo_run as run
from nemo.collections import llm
run.run(run.Partial(llm.import_ckpt, model=run.Config(llm.LlamaModel)))
# %%
recipe = llm.llama32_1b.finetune_recipe(name="ft")
run.run(recipe, executor=run.LocalExecutor())
# answer: trains with NeMo's recipes, which nb2ddp does not convert: nemo_run starts the processes itself
# answer: cell 2

# case: a dead loop
import torch
# %%
if False:
    for b in loader:
        f(b).backward()
# answer: code that never runs
# answer: cell 2

# case: gradients of torch.autograd
import torch
model = torch.nn.Linear(4, 1)
# %%
grads = torch.autograd.grad(model(rows).sum(), model.parameters())
for p, g in zip(model.parameters(), grads):
    p.data -= 0.1 * g
# answer: this grad() is in no loop over batches
# answer: cell 2

# case: gradients of what a model is given
import torch
model = torch.nn.Linear(4, 1)
# %%
shown = torch.autograd.grad(model(x).sum(), x)
# answer: it makes a model here
# answer: cell 1

# case: a loop of SciPy's
import torch
from scipy.optimize import minimize
net = torch.nn.Linear(4, 1)
# %%
def closure(weights):
    loss = net(x).pow(2).mean()
    loss.backward()
    return loss.item(), weights
minimize(closure, w0, jac=True, method="L-BFGS-B")
# answer: this backward() is in no loop over batches that nb2ddp can follow
# answer: cell 2

# case: gradients of torch.func in a loop
import torch
from torch.func import functional_call, grad
net = torch.nn.Linear(4, 1)
# %%
gradients = grad(lambda p: functional_call(net, p, (x,)).mean())
for _ in range(3):
    p = {k: p[k] - gradients(p)[k] for k in p}
# answer: cannot follow what torch.func.grad() is for here: compute the gradients of what this trains
# answer: cell 2

# case: gradients of torch.func, once
import torch
net = torch.nn.Linear(4, 1)
shown = torch.func.grad(lambda x: net(x).sum())(x)
# answer: it makes a model here
# answer: cell 1

# case: a step of a module beside the notebook, which computes gradients itself
from src.model import Unet
model = Unet()
# %%
for x, y in rows:
    loss = model.backward(x, y)
# answer: calls `model.backward()` of src, whose training nb2ddp does not convert
# answer: cell 2

# case: a Trainer of a module out of sight, which trains several models
from paperlib.training import MultilabelTrainer
# %%
trainer = MultilabelTrainer(rows)
trainer.run_all(x=x)
# answer: calls `trainer.run_all()` of paperlib, whose training nb2ddp does not convert
# answer: cell 2

# case: a function of a module out of sight that is given an optimizer
from helpers import train_graph_level, train_transforms
from sklearn.model_selection import train_test_split
rows, held_out = train_test_split(train_transforms(images))
model = make()
# %%
history = train_graph_level(model, optimizer=Adam(model))
# answer: calls `train_graph_level()` of helpers, whose training nb2ddp does not convert
# answer: cell 2

# case: a script that runs in the kernel
%run finetune.py --epochs 3
# answer: what trains here is the command `%run finetune.py --epochs 3`: `torchrun --nproc_per_node 2 finetune.py
# answer: cell 1

# case: a function of a module out of sight that is given an optimizer and data, whatever its name
from helpers import autoencoder_trainer, schedule
schedule(optimizer, epochs=3)
# %%
losses = autoencoder_trainer(model=net, optimizer=optimizer, train_loader=rows)
# answer: calls `autoencoder_trainer()` of helpers, whose training nb2ddp does not convert
# answer: cell 2

# case: a fit() in a method that a library may call
import albumentations, staintools
class Stain(albumentations.ImageOnlyTransform):
    def __init__(self):
        self.augmentor = staintools.StainAugmentor()
    def apply(self, image, **params):
        self.augmentor.fit(image)
        return self.augmentor.pop()
# answer: no Trainer that it knows, no loop with backward(), and no fit() of a model
# answer: no cell

# case: a fit() in a method that the notebook calls
import staintools
class Stain:
    def __init__(self):
        self.model = staintools.Model()
    def run(self, images):
        self.model.fit(images)
Stain().run(images)
# answer: calls `self.model.fit()` of staintools
# answer: cell 1

# case: steps of a Trainer that the notebook takes itself
from trl import PPOTrainer
trainer = PPOTrainer(model=model)
# %%
for q, r in rows:
    stats = trainer.step(q, r, rewards)
# answer: trains with step() of TRL's older PPOTrainer, which nb2ddp does not convert: TRL 0.12 and newer
# answer: cell 2

# case: a module of the notebook's own, which transforms images
import torch
class Mask(torch.nn.Module):
    def forward(self, x):
        return x * (x > 0.5)
shown = Mask()(torch.rand(4))
# answer: it makes a model here
# answer: cell 1

# case: an older trainer of segmentation models
from mmseg.apis import train_segmentor
train_segmentor(model, rows, cfg, distributed=False, validate=True)
# answer: trains with MMCV, which nb2ddp does not convert: after mmcv.runner.init_dist("pytorch") it trains on several GPUs
# answer: cell 1

# case: a model that is made of random numbers, which no file gives
from transformers import BertConfig, BertModel
model = BertModel(BertConfig())
# answer: it makes a model here
# answer: cell 1

# case: a function of a module beside the notebook, with settings of its own
from src.engine import train
# %%
train()
# answer: this notebook calls `train()` of src, whose training nb2ddp does not convert
# answer: cell 2

# case: a class that changes what it keeps, without gradients
import numpy as np
class Net:
    def update(self, step):
        self.weights = self.weights + 0.1 * step
# %%
for step in steps:
    Net().update(step)
# answer: no fit() of a model; training in modules that it imports is not in sight
# answer: no cell

# case: a function that comes with all names of a module beside the notebook
from torch import nn
from helpers import *
net, optimizer = nn.Linear(2, 2), make_optimizer()
# %%
trainModel_2(net, optimizer, train_dataloader)
# answer: this notebook calls `trainModel_2()` of helpers, whose training nb2ddp does not convert
# answer: cell 2

# case: a model of a module beside the notebook, fitted to what a generator gives
from helpers import model
# %%
model.fit_generator(batches, epochs=2)
# answer: this notebook calls `model.fit_generator()` of helpers, whose training nb2ddp does not convert
# answer: cell 2

# case: a function that gets an optimizer, above the method that trains
from helpers import LMTrainer, create_scheduler
trainer = LMTrainer(model)
# %%
scheduler = create_scheduler(optimizer=trainer.optimizer, train_loader=rows)
# %%
trainer.train(rows, epochs=2)
# answer: this notebook calls `trainer.train()` of helpers, whose training nb2ddp does not convert
# answer: cell 3

# case: a script that may train, above one that does by its name
import subprocess, sys
# %%
subprocess.run([sys.executable, "scripts/run_all_controls.py"])
# %%
subprocess.Popen([sys.executable, "scripts/tune_lora.py"])
# answer: what trains here is the command `{sys.executable} scripts/tune_lora.py`
# answer: cell 3

# case: Keras, beside what scikit-learn returns
import keras
from sklearn.model_selection import train_test_split
# %%
def prepare():
    rows, tests = train_test_split(load())
    return rows, tests, keras.Sequential([keras.layers.Dense(1)])
def train(rows, model):
    return model.fit(rows, epochs=5)
# %%
rows, tests, model = prepare()
train(rows, model)
# answer: this notebook trains with Keras
# answer: cell 2
