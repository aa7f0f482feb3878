# Two optimizers with schedulers of their own by hand, a callback that writes a file, and a learning rate that is found.
# %%
import json
from functools import partial

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, Timer
from lightning.pytorch.tuner import Tuner
from lightning.pytorch.utilities import rank_zero_only
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

seed = L.seed_everything(21)


# %%
class History(Callback):
    def __init__(self, path):
        self.path, self.lines = path, []

    def on_train_epoch_end(self, trainer, pl_module):
        values = {name: value.item() for name, value in trainer.callback_metrics.items()}
        self.lines.append({"epoch": trainer.current_epoch, **values})
        if trainer.is_global_zero:
            with open(self.path, "w") as file:
                json.dump(self.lines, file)


class TwoParts(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.body, self.head = nn.Sequential(nn.Linear(8, 32), nn.ReLU()), nn.Linear(32, 1)

    def compute_loss(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.head(self.body(x)).squeeze(1), y)

    def training_step(self, batch, batch_idx):
        of_body, of_head = self.optimizers()
        loss = self.compute_loss(batch)
        for optimizer in (of_body, of_head):
            optimizer.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(of_body, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
        of_body.step()
        if batch_idx % 2:
            of_head.step()
        self.log("loss", loss, on_epoch=True)
        if self.trainer.is_last_batch:
            for scheduler in self.lr_schedulers():
                scheduler.step()

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.compute_loss(batch))

    @rank_zero_only
    def say(self):
        print("the body's weights:", self.body[0].weight.norm().item())

    def on_train_end(self):
        self.say()

    def configure_optimizers(self):
        of_body = torch.optim.Adam(self.body.parameters(), lr=1e-2)
        of_head = torch.optim.SGD(self.head.parameters(), lr=5e-2, momentum=0.5)
        return (
            {"optimizer": of_body, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(of_body, 0.9)},
            {"optimizer": of_head, "lr_scheduler": torch.optim.lr_scheduler.StepLR(of_head, 2, 0.5)},
        )


class OnePart(TwoParts):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.automatic_optimization = True
        self.save_hyperparameters()

    def training_step(self, batch, batch_idx):
        return self.compute_loss(batch)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


# %%
x = torch.randn(96, 8)
data = TensorDataset(x, x[:, 0] * x[:, 1])
loader = partial(DataLoader, data, batch_size=12)
history = History("history.json")
trainer = L.Trainer(
    max_epochs=3,
    callbacks=[history, Timer(duration="00:01:00:00")],
    log_every_n_steps=3,
    enable_progress_bar=False,
)
trainer.fit(TwoParts(), loader(shuffle=True), loader())
print(history.lines[-1])

# %%
model = OnePart()
trainer = L.Trainer(
    max_epochs=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
found = Tuner(trainer).lr_find(model, loader(shuffle=True), num_training=20, min_lr=1e-4, max_lr=1e-1)
print(found.suggestion(), found.results["loss"])
trainer.fit(model, loader(shuffle=True))
print(trainer.validate(model, loader(), verbose=False))
