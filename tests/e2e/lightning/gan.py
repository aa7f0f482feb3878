# A GAN: manual optimization, two optimizers that take turns, and samples at the end of each epoch.
# %%
import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

seed = pl.seed_everything(1)


# %%
class Generator(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(latent, 32), nn.LeakyReLU(0.2), nn.LayerNorm(32), nn.Linear(32, 16), nn.Tanh()
        )

    def forward(self, z):
        return self.model(z).view(z.size(0), 1, 4, 4)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, images):
        return self.model(images.flatten(1))


class GAN(pl.LightningModule):
    def __init__(self, latent=8, lr=2e-3, b1=0.5, b2=0.999):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.generator, self.discriminator = Generator(latent), Discriminator()
        self.validation_z = torch.randn(6, latent)

    def forward(self, z):
        return self.generator(z)

    def adversarial_loss(self, y_hat, y):
        return F.binary_cross_entropy_with_logits(y_hat, y)

    def training_step(self, batch):
        (images,) = batch
        optimizer_g, optimizer_d = self.optimizers()
        z = torch.randn(images.shape[0], self.hparams.latent).type_as(images)

        self.toggle_optimizer(optimizer_g)
        generated = self(z)
        valid = torch.ones(images.size(0), 1).type_as(images)
        g_loss = self.adversarial_loss(self.discriminator(generated), valid)
        self.log("g_loss", g_loss, prog_bar=True)
        self.manual_backward(g_loss)
        optimizer_g.step()
        optimizer_g.zero_grad()
        self.untoggle_optimizer(optimizer_g)

        self.toggle_optimizer(optimizer_d)
        real_loss = self.adversarial_loss(self.discriminator(images), valid)
        fake = torch.zeros(images.size(0), 1).type_as(images)
        fake_loss = self.adversarial_loss(self.discriminator(self(z).detach()), fake)
        d_loss = (real_loss + fake_loss) / 2
        self.log("d_loss", d_loss, prog_bar=True)
        self.manual_backward(d_loss)
        optimizer_d.step()
        optimizer_d.zero_grad()
        self.untoggle_optimizer(optimizer_d)

    def configure_optimizers(self):
        lr, betas = self.hparams.lr, (self.hparams.b1, self.hparams.b2)
        opt_g = torch.optim.Adam(self.generator.parameters(), lr=lr, betas=betas)
        opt_d = torch.optim.Adam(self.discriminator.parameters(), lr=lr, betas=betas)
        return [opt_g, opt_d], []

    def on_train_epoch_end(self):
        samples = self(self.validation_z.type_as(self.generator.model[0].weight))
        self.log("sample_norm", samples.norm())
        torch.save(samples.detach().cpu(), f"samples_{self.current_epoch}.pt")


# %%
images = torch.tanh(torch.randn(96, 1, 4, 4) + 0.5)
model = GAN()
trainer = (
    pl.Trainer(
        accelerator="auto",
        devices=[0],
        max_epochs=3,
        logger=CSVLogger("logs", name="gan"),
        log_every_n_steps=1,
        enable_progress_bar=False,
    )
    if torch.cuda.is_available()
    else pl.Trainer(
        accelerator="cpu",
        max_epochs=3,
        logger=CSVLogger("logs", name="gan"),
        log_every_n_steps=1,
        enable_progress_bar=False,
    )
)
trainer.fit(model, DataLoader(TensorDataset(images), batch_size=16, shuffle=True))

# %%
print({name: float(value) for name, value in trainer.logged_metrics.items()})
