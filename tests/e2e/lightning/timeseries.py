# A forecast by an LSTM: windows of a series, a schedule by steps, predictions, and a table of errors.
# %%
import math

import pandas as pd
import pytorch_lightning as pl
import torch
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import EarlyStopping, LearningRateMonitor
from pytorch_lightning.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, Dataset

pl.seed_everything(0)
INPUT, HORIZON = 16, 4


# %%
class Windows(Dataset):
    def __init__(self, series):
        self.series = series

    def __len__(self):
        return len(self.series) - INPUT - HORIZON

    def __getitem__(self, i):
        return self.series[i : i + INPUT, None], self.series[i + INPUT : i + INPUT + HORIZON]


class Forecaster(pl.LightningModule):
    def __init__(self, hidden=24, learning_rate=1e-2, steps=100):
        super().__init__()
        self.save_hyperparameters()
        self.lstm = nn.LSTM(1, hidden, num_layers=2, batch_first=True)
        self.fc = nn.Linear(hidden, HORIZON)
        self.criterion = nn.HuberLoss()
        self.validation_step_outputs = []

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.fc(out[:, -1])

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = self.criterion(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        y_hat = self(x)
        self.log("val_loss", self.criterion(y_hat, y), prog_bar=True)
        self.validation_step_outputs.append((y_hat - y).abs())

    def on_validation_epoch_end(self):
        errors = torch.cat(self.validation_step_outputs)
        self.log("val_mae", errors.mean())
        self.validation_step_outputs.clear()

    def predict_step(self, batch, batch_idx):
        return self(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.learning_rate)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=self.hparams.learning_rate, total_steps=self.hparams.steps
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


# %%
time = torch.arange(200, dtype=torch.float32)
series = torch.sin(time * 2 * math.pi / 12) + 0.01 * time + 0.1 * torch.randn(200)
train, val = Windows(series[:150]), Windows(series[130:])
train_loader = DataLoader(train, batch_size=20, shuffle=True)
val_loader = DataLoader(val, batch_size=20)
EPOCHS = 4
model = Forecaster(steps=EPOCHS * len(train_loader))
trainer = Trainer(
    max_epochs=EPOCHS,
    accelerator="auto",
    callbacks=[LearningRateMonitor(logging_interval="step"), EarlyStopping("val_loss", patience=5)],
    logger=CSVLogger(save_dir="runs", name="lstm"),
    gradient_clip_val=0.1,
    gradient_clip_algorithm="value",
    log_every_n_steps=2,
    enable_progress_bar=False,
)
trainer.fit(model, train_dataloaders=train_loader, val_dataloaders=val_loader)

# %%
predicted = torch.cat(trainer.predict(model, val_loader))
actual = torch.stack([val[i][1] for i in range(len(val))])
table = pd.DataFrame({"mae": (predicted - actual).abs().mean(0).tolist()})
table.to_csv("errors.csv", index_label="step")
print(table)
