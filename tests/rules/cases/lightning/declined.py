# What is more than one process by itself cannot become the run of one.

# first cell
import lightning as L
model = make_model()

# case: two devices
trainer = L.Trainer(devices=2)
trainer.fit(model)
# decline, line 1: this Trainer starts several processes itself, each with batches of its own (devices)...devices=1...

# case: two devices, by their numbers
GPUS = [0, 1]
trainer = L.Trainer(devices=GPUS)
trainer.fit(model)
# decline, line 2: ...(devices)...

# case: two devices, in a text
trainer = L.Trainer(devices="0,1")
trainer.fit(model)
# decline, line 1: ...(devices)...

# case: two machines
trainer = L.Trainer(devices=1, num_nodes=2)
trainer.fit(model)
# decline, line 1: ...(num_nodes)...

# case: shards
trainer = L.Trainer(strategy="deepspeed_stage_2")
trainer.fit(model)
# decline, line 1: this Trainer's strategy (deepspeed_stage_2) divides the model...

# case: shards, of an object
from lightning.pytorch.strategies import FSDPStrategy
trainer = L.Trainer(strategy=FSDPStrategy())
trainer.fit(model)
# decline, line 2: this Trainer's strategy (FSDPStrategy) divides the model...

# case: a TPU
trainer = L.Trainer(accelerator="tpu", devices=1)
trainer.fit(model)
# decline, line 1: this Trainer's accelerator (tpu)...

# case: cores of a TPU, as Lightning 1.x takes them
trainer = L.Trainer(tpu_cores=8)
trainer.fit(model)
# decline, line 1: this Trainer's tpu_cores (8)...

# case: one core of a TPU, by its number
CORES = [5]
trainer = L.Trainer(tpu_cores=CORES)
trainer.fit(model)
# decline, line 2: this Trainer's tpu_cores ([5])...

# case: cores of a TPU, in a text
trainer = L.Trainer(tpu_cores="1")
trainer.fit(model)
# decline, line 1: this Trainer's tpu_cores (1)...

# case: IPUs, as Lightning 1.x takes them
trainer = L.Trainer(ipus=4)
trainer.fit(model)
# decline, line 1: this Trainer's ipus (4)...

# case: several processes, as Lightning 1.x takes them
trainer = L.Trainer(num_processes=4)
trainer.fit(model)
# decline, line 1: this Trainer starts several processes itself, each with batches of its own (num_processes)...

# case: a batch that is found
from lightning.pytorch.tuner import Tuner
trainer = L.Trainer()
Tuner(trainer).scale_batch_size(model)
trainer.fit(model)
# decline, line 3: this tries batches until one does not fit on the GPU...

# case: a batch that a callback finds
from lightning.pytorch.callbacks import BatchSizeFinder
trainer = L.Trainer(callbacks=[BatchSizeFinder()])
trainer.fit(model)
# decline, line 2: this tries batches until one does not fit on the GPU...

# case: steps that are compiled
import torch

class Net(L.LightningModule):
    pass

net = torch.compile(Net())
trainer = L.Trainer()
trainer.fit(net)
# decline, line 6: this compiles the steps of Lightning's loop...

# case: a network that is compiled
import torch
net = torch.compile(torch.nn.Linear(2, 2))
trainer = L.Trainer()
trainer.fit(Net(net))
# output
import torch
net = torch.compile(torch.nn.Linear(2, 2))
trainer = ddp.lightning_trainer(L.Trainer)()
trainer.fit(Net(net))
ddp.check_replicas()

# case: several GPUs, as Lightning 1.x takes them
trainer = L.Trainer(gpus=2)
trainer.fit(net)
# decline, line 1: this Trainer starts several processes itself, each with batches of its own (gpus)...
