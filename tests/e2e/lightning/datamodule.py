# A data module that downloads, splits and augments; workers draw the augmentations.
# %%
import json
import random
from pathlib import Path

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

L.seed_everything(11, workers=True)
DATA = Path("data")


# %%
class Augmented(Dataset):
    def __init__(self, rows, labels, augment):
        self.rows, self.labels, self.augment = rows, labels, augment

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        image = self.rows[index].reshape(1, 6, 6)
        if self.augment:
            if random.random() < 0.5:
                image = image.flip(2)
            image = image + 0.1 * torch.randn(image.shape) + float(np.random.uniform(-0.1, 0.1))
        return image, self.labels[index]


class ShapesData(L.LightningDataModule):
    def __init__(self, batch_size=10, num_workers=2):
        super().__init__()
        self.save_hyperparameters()

    def prepare_data(self):
        if DATA.exists():
            assert (DATA / "rows.json").exists(), "another process is still writing"
            return
        DATA.mkdir()
        draw = np.random.default_rng(0)
        rows = draw.normal(size=(90, 36)).round(4)
        (DATA / "rows.json").write_text(json.dumps(rows.tolist()))

    def setup(self, stage):
        rows = torch.tensor(json.loads((DATA / "rows.json").read_text()))
        labels = (rows[:, :18].sum(1) > rows[:, 18:].sum(1)).long()
        if stage == "fit":
            both = random_split(range(70), [50, 20])
            self.train_set, self.val_set = (
                Augmented(rows[list(part)], labels[list(part)], augment)
                for part, augment in zip(both, (True, False))
            )
        if stage == "test":
            self.test_set = Augmented(rows[70:], labels[70:], False)

    def _loader(self, data, shuffle=False):
        return DataLoader(
            data,
            batch_size=self.hparams.batch_size,
            shuffle=shuffle,
            num_workers=self.hparams.num_workers,
            persistent_workers=self.hparams.num_workers > 0,
        )

    def train_dataloader(self):
        return self._loader(self.train_set, shuffle=True)

    def val_dataloader(self):
        return self._loader(self.val_set)

    def test_dataloader(self):
        return self._loader(self.test_set)


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(32, 2)
        self.loss = nn.CrossEntropyLoss()

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = self.loss(self.head(self.features(x)), y)
        self.log_dict({"train/loss": loss, "train/batch": float(len(x))}, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val/loss", self.loss(self.head(self.features(x)), y))

    def test_step(self, batch, batch_idx):
        x, y = batch
        self.log("test/acc", (self.head(self.features(x)).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9, nesterov=True)


# %%
data, model = ShapesData(), Net()
trainer = L.Trainer(max_epochs=3, log_every_n_steps=1, accelerator="auto", enable_progress_bar=False)
trainer.fit(model, data)

# %%
print(trainer.test(model, data, verbose=False))
