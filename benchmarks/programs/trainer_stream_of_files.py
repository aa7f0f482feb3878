# %%
import json, random
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed
from datasets import load_dataset
random.seed(0)
for name in ("a", "b"):
    with open(f"{name}.jsonl", "w") as file:
        for _ in range(16):
            row = [random.randrange(20) for _ in range(6)]
            file.write(json.dumps({"input_ids": row, "labels": sum(row) % 3}) + "\n")
# %%
set_seed(0)
data = load_dataset("json", data_files=["a.jsonl", "b.jsonl"], split="train", streaming=True)
config = BertConfig(vocab_size=20, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
model = BertForSequenceClassification(config)
args = TrainingArguments("out", per_device_train_batch_size=4, gradient_accumulation_steps=2, report_to=[],
    use_cpu=True, disable_tqdm=True, logging_steps=1, optim="sgd", max_steps=5, learning_rate=0.05, save_strategy="no")
trainer = Trainer(model, args, train_dataset=data)
trainer.train()
