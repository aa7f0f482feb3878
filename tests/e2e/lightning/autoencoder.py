# An autoencoder that a function trains for two sizes; a scheduler watches the validation loss.
# %%
import os

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CHECKPOINTS = "saved_models"
seed = pl.seed_everything(42)


# %%
class Encoder(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(30, 24), nn.GELU(), nn.Linear(24, latent))

    def forward(self, x):
        return self.net(x)


class Decoder(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(latent, 24), nn.GELU(), nn.Linear(24, 30), nn.Tanh())

    def forward(self, z):
        return self.net(z)


class Autoencoder(pl.LightningModule):
    def __init__(self, latent):
        super().__init__()
        self.save_hyperparameters()
        self.encoder, self.decoder = Encoder(latent), Decoder(latent)

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def _loss(self, batch):
        (x,) = batch
        return nn.functional.mse_loss(self.forward(x), x, reduction="none").sum(1).mean()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="min", factor=0.2, patience=1)
        return {"optimizer": optimizer, "lr_scheduler": scheduler, "monitor": "val_loss"}

    def training_step(self, batch, batch_idx):
        loss = self._loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self._loss(batch))

    def test_step(self, batch, batch_idx):
        self.log("test_loss", self._loss(batch))


class KeepReconstructions(pl.Callback):
    def __init__(self, rows, every=2):
        super().__init__()
        self.rows, self.every, self.kept = rows, every, []

    def on_train_epoch_end(self, trainer, pl_module):
        if trainer.current_epoch % self.every == 0:
            with torch.no_grad():
                pl_module.eval()
                self.kept.append(pl_module(self.rows.to(pl_module.device)).norm().item())
                pl_module.train()


# %%
rows = torch.tanh(torch.randn(120, 6) @ torch.randn(6, 30))
train_loader = DataLoader(TensorDataset(rows[:80]), batch_size=16, shuffle=True, drop_last=True)
val_loader = DataLoader(TensorDataset(rows[80:100]), batch_size=10)
test_loader = DataLoader(TensorDataset(rows[100:]), batch_size=10)


def train(latent):
    kept = KeepReconstructions(rows[:5])
    trainer = pl.Trainer(
        default_root_dir=os.path.join(CHECKPOINTS, f"latent_{latent}"),
        accelerator="auto",
        devices="auto",
        max_epochs=4,
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ModelCheckpoint(save_weights_only=True), LearningRateMonitor("epoch"), kept],
    )
    model = Autoencoder(latent)
    trainer.fit(model, train_loader, val_loader)
    val = trainer.test(model, dataloaders=val_loader, verbose=False)
    test = trainer.test(model, dataloaders=test_loader, verbose=False)
    return model, {"val": val[0]["test_loss"], "test": test[0]["test_loss"], "kept": kept.kept}


# %%
results = {}
for latent in (2, 5):
    model, results[latent] = train(latent)
print(results)
