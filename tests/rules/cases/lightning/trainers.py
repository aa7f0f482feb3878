# Lightning's Trainer runs on every rank as in one process.

# first cell
import lightning as L
import torch
from torch import nn

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(2, 2)

    def training_step(self, batch, batch_idx):
        return self.net(batch).sum()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)

model = Net()

# case: a Trainer in a cell
trainer = L.Trainer(
    max_epochs=3,
    devices=1,
)
trainer.fit(model, loader)
# output
trainer = ddp.lightning_trainer(L.Trainer)(
    max_epochs=3,
    devices=1,
)
trainer.fit(model, loader)
ddp.check_replicas()

# case: without a name
import pytorch_lightning as pl
pl.Trainer(devices=-1, strategy="ddp_notebook").fit(model, loader)
# output
import pytorch_lightning as pl
ddp.lightning_trainer(pl.Trainer)(devices=-1, strategy="ddp_notebook").fit(model, loader)
ddp.check_replicas()

# case: in a function, under another name
from lightning.pytorch import Trainer as T

def train(**options):
    trainer = T(**options, devices=[0])
    trainer.fit(model)
    return trainer.test(model)

train()
# output
from lightning.pytorch import Trainer as T

def train(**options):
    trainer = ddp.lightning_trainer(T)(**options, devices=[0])
    trainer.fit(model)
    ddp.check_replicas()
    return trainer.test(model)

train()

# case: a class keeps it
class Run:
    def __init__(self):
        self.trainer = L.Trainer()

    def go(self):
        return self.trainer.fit(model)

Run().go()
# output
class Run:
    def __init__(self):
        self.trainer = ddp.lightning_trainer(L.Trainer)()

    def go(self):
        return ddp.check_replicas(result=self.trainer.fit(model))

Run().go()

# case: a class of the notebook's own
class Mine(L.Trainer):
    pass

trainer = Mine(max_epochs=1)
trainer.fit(model)
# output
class Mine(L.Trainer):
    pass

trainer = ddp.lightning_trainer(Mine)(max_epochs=1)
trainer.fit(model)
ddp.check_replicas()

# case: what rank 0 alone does
from lightning.pytorch.utilities import rank_zero_only

class Show(L.Callback):
    @rank_zero_only
    def on_train_epoch_end(self, trainer, module):
        print(module(rows))

trainer = L.Trainer(callbacks=[Show()])
trainer.fit(model)
rank_zero_only(print)(rank_zero_only.rank)
# output
from lightning.pytorch.utilities import rank_zero_only

class Show(L.Callback):
    @ddp.rank_zero_only
    def on_train_epoch_end(self, trainer, module):
        print(module(rows))

trainer = ddp.lightning_trainer(L.Trainer)(callbacks=[Show()])
trainer.fit(model)
ddp.check_replicas()
ddp.rank_zero_only(print)(rank_zero_only.rank)

# case: one that trains nothing
L.Trainer().predict(model, loader)

# case: no cores of a TPU, and one process
import lightning as L
trainer = L.Trainer(tpu_cores=None, ipus=0, num_processes=1, gpus=1)
trainer.fit(model, loader)
# output
import lightning as L
trainer = ddp.lightning_trainer(L.Trainer)(tpu_cores=None, ipus=0, num_processes=1, gpus=1)
trainer.fit(model, loader)
ddp.check_replicas()
