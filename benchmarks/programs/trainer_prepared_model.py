# %%
import torch
from accelerate import Accelerator
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

torch.manual_seed(0)
config = LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
model = LlamaForCausalLM(config)
rows = [{"input_ids": r, "labels": r} for r in torch.randint(0, 64, (32, 8), generator=torch.Generator().manual_seed(1))]
# %%
accelerator = Accelerator()
model = accelerator.prepare_model(model)
with accelerator.main_process_first():
    rows = list(rows)
args = TrainingArguments(
    "out", per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=4, logging_steps=1, report_to=[],
    save_strategy="no", use_cpu=True, learning_rate=1e-2,
)
with args.main_process_first(desc="rows"):
    rows = rows[::-1]
trainer = Trainer(model, args, train_dataset=rows)
trainer.train()
