# Segmentation with batch norm: statistics are those of whole batches; a dice loss over the batch; IoU by hand.
# %%
import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(5)


# %%
class Shapes(Dataset):
    def __init__(self, count, seed):
        draw = torch.Generator().manual_seed(seed)
        self.images = torch.rand(count, 1, 16, 16, generator=draw)
        self.masks = torch.zeros(count, 1, 16, 16)
        for n in range(count):
            x, y = torch.randint(0, 10, (2,), generator=draw).tolist()
            self.masks[n, :, y : y + 6, x : x + 6] = 1
        self.images += self.masks * 0.7

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return {"image": self.images[index], "mask": self.masks[index]}


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class SmallUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.middle = block(1, 8), block(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.last = nn.Sequential(block(16, 8), nn.Conv2d(8, 1, 1))

    def forward(self, x):
        skip = self.down(x)
        x = self.up(self.middle(nn.functional.max_pool2d(skip, 2)))
        return self.last(torch.cat([skip, x], 1))


def dice_loss(logits, masks):
    probabilities = logits.sigmoid()
    overlap = (probabilities * masks).sum()
    return 1 - (2 * overlap + 1) / (probabilities.sum() + masks.sum() + 1)


class Segmenter(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = SmallUNet()
        self.stats = []

    def forward(self, image):
        return self.model(image)

    def shared_step(self, batch, stage):
        image, mask = batch["image"], batch["mask"]
        assert image.ndim == 4
        logits = self.forward(image)
        loss = dice_loss(logits, mask) + nn.functional.binary_cross_entropy_with_logits(logits, mask)
        predicted = (logits > 0).float()
        self.stats.append((stage, (predicted * mask).sum().item(), ((predicted + mask) > 0).sum().item()))
        self.log(f"{stage}_loss", loss, on_epoch=True, on_step=False)
        return loss

    def shared_epoch_end(self, stage):
        overlap = sum(x[1] for x in self.stats if x[0] == stage)
        union = sum(x[2] for x in self.stats if x[0] == stage)
        self.stats = [x for x in self.stats if x[0] != stage]
        self.log(f"{stage}_iou", overlap / max(union, 1))

    def training_step(self, batch, batch_idx):
        return self.shared_step(batch, "train")

    def on_train_epoch_end(self):
        self.shared_epoch_end("train")

    def validation_step(self, batch, batch_idx):
        return self.shared_step(batch, "valid")

    def on_validation_epoch_end(self):
        self.shared_epoch_end("valid")

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=5e-3)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)]


# %%
model = Segmenter()
best = ModelCheckpoint(
    dirpath="checkpoints", filename="best-{epoch}", monitor="valid_iou", mode="max", save_top_k=1
)
trainer = L.Trainer(
    max_epochs=3,
    callbacks=[best],
    logger=False,
    accelerator="auto",
    devices=-1 if torch.cuda.is_available() else 1,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(
    model, DataLoader(Shapes(30, 1), batch_size=6, shuffle=True), DataLoader(Shapes(12, 2), batch_size=6)
)
print(best.best_model_path[-20:], float(best.best_model_score))

# %%
model = Segmenter.load_from_checkpoint(best.best_model_path)
model.eval()
with torch.no_grad():
    print(model(Shapes(4, 3).images.to(model.device)).sigmoid().mean().item())
