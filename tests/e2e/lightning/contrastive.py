# SimCLR: each row is compared with all others of its batch, so the loss needs whole batches.
# %%
import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

seed = L.seed_everything(42)


# %%
class TwoViews(Dataset):
    def __init__(self, count):
        self.rows = torch.randn(count, 20)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return [row + 0.3 * torch.randn(20), row * (torch.rand(20) > 0.2)], index


class SimCLR(L.LightningModule):
    def __init__(self, hidden_dim=16, lr=5e-3, temperature=0.2, weight_decay=1e-4, max_epochs=3):
        super().__init__()
        self.save_hyperparameters()
        self.convnet = nn.Sequential(nn.Linear(20, 64), nn.ReLU(inplace=True), nn.Linear(64, 64))
        self.convnet.append(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(64, hidden_dim)))

    def configure_optimizers(self):
        optimizer = optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=self.hparams.weight_decay)
        scheduler = optim.lr_scheduler.CosineAnnealingLR(
            optimizer, T_max=self.hparams.max_epochs, eta_min=1e-4
        )
        return [optimizer], [scheduler]

    def info_nce_loss(self, batch, mode="train"):
        views, _ = batch
        rows = torch.cat(views, dim=0)
        feats = self.convnet(rows)
        cos_sim = F.cosine_similarity(feats[:, None, :], feats[None, :, :], dim=-1)
        self_mask = torch.eye(cos_sim.shape[0], dtype=torch.bool, device=cos_sim.device)
        cos_sim.masked_fill_(self_mask, -9e15)
        pos_mask = self_mask.roll(shifts=cos_sim.shape[0] // 2, dims=0)
        cos_sim = cos_sim / self.hparams.temperature
        nll = (-cos_sim[pos_mask] + torch.logsumexp(cos_sim, dim=-1)).mean()
        self.log(mode + "_loss", nll)
        comb_sim = torch.cat([cos_sim[pos_mask][:, None], cos_sim.masked_fill(pos_mask, -9e15)], dim=-1)
        sim_argsort = comb_sim.argsort(dim=-1, descending=True).argmin(dim=-1)
        self.log(mode + "_acc_top1", (sim_argsort == 0).float().mean())
        self.log(mode + "_acc_mean_pos", 1 + sim_argsort.float().mean())
        return nll

    def training_step(self, batch, batch_idx):
        return self.info_nce_loss(batch, mode="train")

    def validation_step(self, batch, batch_idx):
        self.info_nce_loss(batch, mode="val")


# %%
train_loader = DataLoader(TwoViews(60), batch_size=12, shuffle=True, drop_last=True, num_workers=2)
val_loader = DataLoader(TwoViews(24), batch_size=12, num_workers=1)
trainer = L.Trainer(
    max_epochs=3,
    logger=CSVLogger("logs"),
    callbacks=[LearningRateMonitor("epoch")],
    log_every_n_steps=1,
    gradient_clip_val=1.0,
    enable_progress_bar=False,
)
model = SimCLR()
trainer.fit(model, train_loader, val_loader)
print({name: float(value) for name, value in trainer.callback_metrics.items()})
