# Gradients of three batches a step, clipped; an epoch that ends in the middle of a step; averaged weights at the end.
# %%
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import GradientAccumulationScheduler, StochasticWeightAveraging
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

seed = seed_everything(9)


# %%
class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 16)
        self.mix = nn.TransformerEncoderLayer(16, 2, dim_feedforward=32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 40)
        self.temperature = nn.Parameter(torch.ones(()))
        self.norms = []

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.head(self.mix(self.embed(tokens), src_mask=mask, is_causal=True))

    def training_step(self, batch, batch_idx):
        (tokens,) = batch
        logits = self(tokens[:, :-1]) * self.temperature
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("perplexity", loss.exp(), on_epoch=True, on_step=False)
        return loss

    def on_before_optimizer_step(self, optimizer):
        norms = [p.grad.norm() for p in self.parameters() if p.grad is not None]
        self.norms.append(torch.stack(norms).norm().item())

    def configure_optimizers(self):
        optimizer = optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5)),
                "interval": "step",
            },
        }


# %%
tokens = torch.randint(0, 40, (70, 9))
tokens[:, 1::2] = tokens[:, ::2][:, :4]
loader = DataLoader(TensorDataset(tokens), batch_size=5, shuffle=True)
model = Model()
trainer = Trainer(
    max_epochs=4,
    accumulate_grad_batches=3,
    gradient_clip_val=0.5,
    gradient_clip_algorithm="norm",
    callbacks=[StochasticWeightAveraging(swa_lrs=5e-3, swa_epoch_start=2)],
    log_every_n_steps=1,
    enable_progress_bar=False,
)
trainer.fit(model, loader)
print(trainer.global_step, model.norms)

# %%
model = Model()
trainer = Trainer(
    max_epochs=2,
    callbacks=[GradientAccumulationScheduler(scheduling={0: 4, 1: 2})],
    logger=False,
    enable_checkpointing=False,
    limit_train_batches=0.8,
    enable_progress_bar=False,
)
trainer.fit(model, train_dataloaders=loader)
print(trainer.global_step, model.norms, model.temperature.item())
