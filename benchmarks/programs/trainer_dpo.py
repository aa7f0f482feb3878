# %%
import copy
import csv
import math
import random
from collections import deque
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

def seed_everything(seed=42):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)

seed_everything()
device = "cuda" if torch.cuda.is_available() else "cpu"
# %%
X = torch.randn(70, 8)
y = (X[:, 0] + 0.3 * X[:, 1] > 0).long() + (X[:, 2] > 0.8).long()

from datasets import Dataset as HFDataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer
vocab = {"<pad>": 0, "<eos>": 24, "<unk>": 25, **{f"w{i}": i for i in range(1, 24)}}
raw = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
words = lambda n: " ".join(f"w{random.randint(1, 23)}" for _ in range(n))
rows = HFDataset.from_list([{"prompt": words(3), "chosen": " " + words(2 + i % 4), "rejected": " " + words(2 + i % 3)} for i in range(31)])
config = LlamaConfig(vocab_size=26, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0)
model = LlamaForCausalLM(config)
ref = LlamaForCausalLM(config)
args = DPOConfig(output_dir="out", per_device_train_batch_size=2, gradient_accumulation_steps=2, per_device_eval_batch_size=4, num_train_epochs=1, logging_steps=1, learning_rate=1e-3, save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True, seed=0, bf16=False, max_length=16, beta=0.1)
trainer = DPOTrainer(model=model, ref_model=ref, args=args, train_dataset=rows.select(range(22)), eval_dataset=rows.select(range(22, 31)), processing_class=tokenizer)
trainer.train()
metrics = trainer.evaluate()
print({k: round(v, 4) for k, v in metrics.items() if "runtime" not in k and "per_second" not in k})
