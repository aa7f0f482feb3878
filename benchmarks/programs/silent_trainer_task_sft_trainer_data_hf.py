# silent: gradient
# family=trainer task=sft trainer_data=hf, all else plain
# seen: gradient are 3.0e-03 apart (norm 1 against 1)

# %%
import numpy as np
import random
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

# %%
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)

# %%
ids = torch.randint(1, 24, (64, 10)).tolist()
rows = [{"text": " ".join(f"w{t}" for t in x[: 4 + i % 6])} for i, x in enumerate(ids)]
train_rows, eval_rows = rows[:48], rows[48:]
train_ds = Dataset.from_list(train_rows)
eval_ds = Dataset.from_list(eval_rows)

# %%
vocab = {"<pad>": 0, "<eos>": 24, "<unk>": 25, **{f"w{i}": i for i in range(1, 24)}}
raw = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")

# %%
config = LlamaConfig(
    vocab_size=26, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
    num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0,
)

# %%
model = LlamaForCausalLM(config)

# %%
args = SFTConfig(
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
    max_length=16,
)
trainer = SFTTrainer(
    model=model,
    args=args,
    train_dataset=train_ds,
    processing_class=tokenizer,
)

# %%
trainer.train()
