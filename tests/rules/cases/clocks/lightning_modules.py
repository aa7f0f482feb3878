# What ends the training that Lightning runs is asked on rank 0: every rank calls a module's hooks and steps.

# first cell
import time
import lightning as L

# case: a hook of Lightning's module
class Net(L.LightningModule):
    def is_late(self):
        return time.time() > end
    def on_train_batch_end(self, outputs, batch, index):
        if self.is_late():
            self.trainer.should_stop = True
L.Trainer().fit(Net(), loader)
# output
class Net(L.LightningModule):
    def is_late(self):
        return time.time() > end
    def on_train_batch_end(self, outputs, batch, index):
        if ddp.from_main_process(lambda: self.is_late()):
            self.trainer.should_stop = True
L.Trainer().fit(Net(), loader)

# case: a step of Lightning's module, and a callback derived from one of Lightning's
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
class Net(LightningModule):
    def training_step(self, batch, index):
        if time.time() > end:
            return None
        return self(batch)
class Stops(EarlyStopping):
    def on_train_epoch_end(self, trainer, module):
        if time.time() > end:
            trainer.should_stop = True
Trainer(callbacks=[Stops("loss")]).fit(Net(), loader)
# output
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
class Net(LightningModule):
    def training_step(self, batch, index):
        if ddp.from_main_process(lambda: time.time() > end):
            return None
        return self(batch)
class Stops(EarlyStopping):
    def on_train_epoch_end(self, trainer, module):
        if ddp.from_main_process(lambda: time.time() > end):
            trainer.should_stop = True
Trainer(callbacks=[Stops("loss")]).fit(Net(), loader)
