# Fine-tuning a transformer: the model computes the loss, a schedule over all steps, and a metric over all batches.
# %%
import lightning as L
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

seed = L.seed_everything(3, workers=True)


# %%
class Sentences(Dataset):
    def __init__(self, count, seed):
        draw = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(count):
            ids = torch.randint(3, 60, (int(torch.randint(4, 13, (1,), generator=draw)),), generator=draw)
            self.rows.append((ids, int(ids.sum() % 2)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    ids = torch.nn.utils.rnn.pad_sequence([ids for ids, _ in rows], batch_first=True)
    return {
        "input_ids": ids,
        "attention_mask": (ids > 0).long(),
        "labels": torch.tensor([y for _, y in rows]),
    }


class TextModule(L.LightningDataModule):
    def __init__(self, batch_size=8):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        self.train_set, self.val_set = Sentences(64, 1), Sentences(30, 2)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True, collate_fn=collate)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.batch_size, collate_fn=collate)


class TextClassifier(L.LightningModule):
    def __init__(self, lr=2e-3, warmup=2, weight_decay=0.01):
        super().__init__()
        self.save_hyperparameters()
        config = BertConfig(
            vocab_size=60,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        self.model = BertForSequenceClassification(config)
        self.outputs = []

    def forward(self, **inputs):
        return self.model(**inputs)

    def training_step(self, batch, batch_idx):
        loss = self(**batch)[0]
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        val_loss, logits = self(**batch)[:2]
        self.outputs.append({"loss": val_loss, "preds": logits.argmax(1), "labels": batch["labels"]})

    def on_validation_epoch_end(self):
        preds = torch.cat([x["preds"] for x in self.outputs])
        labels = torch.cat([x["labels"] for x in self.outputs])
        self.log("val_loss", torch.stack([x["loss"] for x in self.outputs]).mean(), prog_bar=True)
        self.log("val_acc", (preds == labels).float().mean(), prog_bar=True)
        self.outputs.clear()

    def configure_optimizers(self):
        no_decay = ["bias", "LayerNorm.weight"]
        groups = [
            {
                "params": [
                    p for n, p in self.model.named_parameters() if not any(nd in n for nd in no_decay)
                ],
                "weight_decay": self.hparams.weight_decay,
            },
            {
                "params": [p for n, p in self.model.named_parameters() if any(nd in n for nd in no_decay)],
                "weight_decay": 0.0,
            },
        ]
        optimizer = torch.optim.AdamW(groups, lr=self.hparams.lr)
        scheduler = get_linear_schedule_with_warmup(
            optimizer,
            num_warmup_steps=self.hparams.warmup,
            num_training_steps=self.trainer.estimated_stepping_batches,
        )
        return [optimizer], [{"scheduler": scheduler, "interval": "step", "frequency": 1}]


# %%
data = TextModule()
model = TextClassifier()
trainer = L.Trainer(
    max_epochs=3, accelerator="auto", devices=1, log_every_n_steps=1, enable_progress_bar=False
)
trainer.fit(model, datamodule=data)

# %%
print(trainer.validate(model, datamodule=data, verbose=False))
model.model.save_pretrained("bert")
