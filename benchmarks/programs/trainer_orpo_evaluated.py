# %%
import random

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

random.seed(42)
torch.manual_seed(42)
words = {f"w{i}": i for i in range(1, 24)}
raw = Tokenizer(models.WordLevel({"<pad>": 0, **words, "<eos>": 24, "<unk>": 25}, unk_token="<unk>"))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
)


def some(count):
    return " " + " ".join(random.choices(list(words), k=count))


# %%
rows = Dataset.from_list([{"prompt": some(3).strip(), "chosen": some(2 + i % 4), "rejected": some(2 + i % 3)} for i in range(57)])
config = LlamaConfig(
    vocab_size=26, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=24, eos_token_id=24,
)
model = LlamaForCausalLM(config)
# %%
try:
    from trl import ORPOConfig, ORPOTrainer
except ImportError:  # TRL 1.0 and newer
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer

args = ORPOConfig(
    output_dir="out",
    per_device_train_batch_size=2,
    gradient_accumulation_steps=6,
    per_device_eval_batch_size=4,
    num_train_epochs=2,
    eval_strategy="steps",
    eval_steps=3,
    logging_steps=1,
    learning_rate=1e-2,
    max_length=16,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
    disable_tqdm=True,
    bf16=False,
    seed=0,
)
trainer = ORPOTrainer(
    model=model,
    args=args,
    train_dataset=rows.select(range(48)),
    eval_dataset=rows.select(range(48, 57)),
    processing_class=tokenizer,
)
trainer.train()
# %%
metrics = trainer.evaluate()
print({name: round(value, 5) for name, value in metrics.items() if "runtime" not in name and "per_second" not in name})
