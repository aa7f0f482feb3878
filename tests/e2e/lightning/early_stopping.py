# Early stopping, the two best checkpoints and the last one, a run that goes on from there, and the best one tested.
# %%
import os

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

seed = pl.seed_everything(5)


# %%
class Regression(pl.LightningModule):
    def __init__(self, width=24, lr=0.05):
        super().__init__()
        self.save_hyperparameters()
        self.model = nn.Sequential(nn.Linear(10, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x):
        return self.model(x).squeeze(-1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.smooth_l1_loss(self(x), y)
        self.log("train_loss", loss)
        return {"loss": loss, "rows": len(x)}

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", nn.functional.mse_loss(self(x), y))

    def test_step(self, batch, batch_idx):
        x, y = batch
        self.log("test_mae", (self(x) - y).abs().mean())

    def predict_step(self, batch, batch_idx, dataloader_idx=0):
        return self(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9)

    def on_save_checkpoint(self, checkpoint):
        checkpoint["note"] = "of this notebook"


x = torch.randn(120, 10)
y = x[:, 0] - x[:, 1] * x[:, 2] + 0.3 * torch.randn(120)
parts = [TensorDataset(x[a:b], y[a:b]) for a, b in ((0, 40), (40, 80), (80, 120))]
train_loader = DataLoader(parts[0], batch_size=8, shuffle=True)
val_loader, test_loader = (DataLoader(part, batch_size=20) for part in parts[1:])

# %%
stopping = EarlyStopping(monitor="val_loss", patience=3, mode="min", verbose=True)
checkpoints = ModelCheckpoint(
    dirpath="checkpoints",
    filename="{epoch:02d}-{val_loss:.2f}",
    monitor="val_loss",
    mode="min",
    save_top_k=2,
    save_last=True,
)
trainer = pl.Trainer(
    max_epochs=30, callbacks=[stopping, checkpoints], logger=False, enable_progress_bar=False
)
model = Regression()
trainer.fit(model, train_loader, val_loader)
print("stopped after", trainer.current_epoch, "epochs;", os.path.basename(checkpoints.best_model_path))
print(sorted(os.listdir("checkpoints")))

# %%
longer = pl.Trainer(
    max_epochs=trainer.current_epoch + 2,
    default_root_dir="longer",
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
longer.fit(model, train_loader, val_loader, ckpt_path=os.path.join("checkpoints", "last.ckpt"))
longer.save_checkpoint("longer.ckpt")
print({name: value.item() for name, value in longer.callback_metrics.items()})

# %%
print(trainer.test(ckpt_path="best", dataloaders=test_loader, verbose=False))
predictions = torch.cat(trainer.predict(model, test_loader))
best = Regression.load_from_checkpoint(checkpoints.best_model_path)
print(predictions.mean().item(), best(x[:5].to(best.device)).tolist(), best.hparams.width)
