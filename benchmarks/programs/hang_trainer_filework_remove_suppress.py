# hang: # ranks: setup_ddp | wait_for_main_process
# family=trainer filework=remove_suppress, all else plain
# seen: line 282 in <module> > line 72 in setup_ddp

# %%
import numpy as np
import os
import random
import torch
from contextlib import suppress
from torch.utils.data import Dataset as TorchDataset
from transformers import BertConfig, BertForSequenceClassification
from transformers import Trainer
from transformers import TrainingArguments

# %%
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)

# %%
ids = torch.randint(1, 24, (64, 10)).tolist()
rows = [{"input_ids": x, "labels": (x[0] + x[1]) % 3} for x in ids]
train_rows, eval_rows = rows[:48], rows[48:]

class Rows(TorchDataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {k: torch.tensor(v) for k, v in self.rows[i].items()}

train_ds, eval_ds = Rows(train_rows), Rows(eval_rows)

# %%
with suppress(FileNotFoundError):
    os.remove("train.log")

# %%
config = BertConfig(
    vocab_size=24, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=3, max_position_embeddings=32,
)

# %%
model = BertForSequenceClassification(config)

# %%
args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=4,
    learning_rate=5e-3,
    num_train_epochs=2,
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
    disable_tqdm=True,
    seed=0,
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=train_ds,
)

# %%
trainer.train()
