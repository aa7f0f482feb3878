# A classifier with dropout, as the first tutorial has it: fit, validate, test, and the weights in a file.
# %%
import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

seed = L.seed_everything(7)


# %%
class LitClassifier(L.LightningModule):
    def __init__(self, hidden=32, lr=1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, 4)
        )

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        self.log("train_loss", loss, prog_bar=True)
        self.log("train_acc", (logits.argmax(1) == y).float().mean(), on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self._evaluate(batch, "val")

    def test_step(self, batch, batch_idx):
        self._evaluate(batch, "test")

    def _evaluate(self, batch, stage):
        x, y = batch
        logits = self(x)
        self.log(f"{stage}_loss", F.cross_entropy(logits, y))
        self.log(f"{stage}_acc", (logits.argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


# %%
images = torch.randn(150, 1, 8, 8)
labels = (images.mean((1, 2, 3)) > 0).long() + 2 * (images[:, 0, 0, 0] > 0).long()
train_set, val_set, test_set = random_split(TensorDataset(images, labels), [100, 25, 25])
train_loader = DataLoader(train_set, batch_size=16, shuffle=True)
val_loader = DataLoader(val_set, batch_size=16)
test_loader = DataLoader(test_set, batch_size=16)

# %%
model = LitClassifier()
trainer = L.Trainer(
    max_epochs=4, accelerator="auto", devices=1, log_every_n_steps=2, enable_progress_bar=False
)
trainer.fit(model, train_loader, val_loader)

# %%
results = trainer.test(model, test_loader)
print(results)

# %%
torch.save(model.state_dict(), "classifier.pt")
print({name: value.item() for name, value in trainer.callback_metrics.items()})
