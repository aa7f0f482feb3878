# Metrics of torchmetrics: objects that add up over an epoch, a collection, a confusion matrix, sync_dist.
# %%
import lightning as L
import torch
import torchmetrics
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix, MulticlassF1Score

L.seed_everything(2)
CLASSES = 3


# %%
class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 48), nn.SiLU(), nn.Linear(48, CLASSES))
        self.loss = nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.tensor([1.0, 2.0, 0.5]))
        metrics = torchmetrics.MetricCollection(
            {"acc": MulticlassAccuracy(CLASSES), "f1": MulticlassF1Score(CLASSES, average="macro")}
        )
        self.train_metrics = metrics.clone(prefix="train_")
        self.val_metrics = metrics.clone(prefix="val_")
        self.confusion = MulticlassConfusionMatrix(CLASSES)
        self.mean_loss = torchmetrics.MeanMetric()
        self.history = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = self.loss(logits, y)
        self.train_metrics(logits, y)
        self.log_dict(self.train_metrics, on_step=True, on_epoch=True)
        self.log("train_loss", loss, sync_dist=True, on_epoch=True, batch_size=len(x))
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.val_metrics.update(logits, y)
        self.confusion.update(logits, y)
        self.mean_loss.update(self.loss(logits, y), weight=len(x))

    def on_validation_epoch_end(self):
        self.log_dict(self.val_metrics.compute(), sync_dist=True)
        self.log("val_loss", self.mean_loss.compute(), sync_dist=True)
        everything = self.all_gather(self.mean_loss.compute())
        self.history.append(
            {"matrix": self.confusion.compute().tolist(), "gathered": everything.sum().item()}
        )
        for metric in (self.val_metrics, self.confusion, self.mean_loss):
            metric.reset()

    def configure_optimizers(self):
        return torch.optim.RAdam(self.parameters(), lr=1e-2)


# %%
x = torch.randn(110, 12)
y = (x[:, :4].sum(1) > 0).long() + (x[:, 4] > 0.5).long()
data = TensorDataset(x, y)
logger = CSVLogger("logs", name="metrics", version="first")
trainer = L.Trainer(
    max_epochs=3,
    logger=logger,
    log_every_n_steps=1,
    val_check_interval=0.5,
    deterministic=True,
    accelerator="auto",
    enable_progress_bar=False,
)
model = Net()
trainer.fit(model, DataLoader(data, batch_size=14, shuffle=True), DataLoader(data, batch_size=32))

# %%
import pandas as pd

figures = pd.read_csv(f"{trainer.logger.log_dir}/metrics.csv")
print(figures.groupby("epoch").mean().round(4).to_string())
print(model.history[-1])
