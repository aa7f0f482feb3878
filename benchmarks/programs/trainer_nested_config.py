# %%
import torch, random, numpy as np
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)

CONFIG = {"training": {"output_dir": "out", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_train_epochs": 1, "logging_steps": 1, "save_strategy": "no", "report_to": "none", "use_cpu": True, "disable_tqdm": True, "seed": 0}, "model": {"hidden": 16}}
# %%
ids = torch.randint(1, 24, (40, 10))
rows = [{"input_ids": x, "labels": int(x[0] + x[1]) % 3} for x in ids]
model = BertForSequenceClassification(BertConfig(vocab_size=24, hidden_size=CONFIG["model"]["hidden"], num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=3, max_position_embeddings=32))
args = TrainingArguments(**CONFIG["training"])
trainer = Trainer(model=model, args=args, train_dataset=rows)
trainer.train()
