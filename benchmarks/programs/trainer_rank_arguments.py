# %%
import os, torch
from transformers import Trainer, TrainingArguments, LlamaConfig, LlamaForCausalLM, set_seed
set_seed(0)
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)
model = LlamaForCausalLM(config)
data = [{"input_ids": torch.randint(0, 64, (12,))} for _ in range(32)]
for row in data:
    row["labels"] = row["input_ids"].clone()
is_main = int(os.environ.get("LOCAL_RANK", 0)) == 0
# %%
args = TrainingArguments("out", per_device_train_batch_size=4, num_train_epochs=1, logging_steps=1, report_to="none", save_strategy="epoch" if is_main else "no", disable_tqdm=not is_main, use_cpu=True)
trainer = Trainer(model, args, train_dataset=data, eval_dataset=data[:8])
trainer.train()
# %%
is_main and trainer.save_model("final")
if is_main:
    print("done", round(trainer.state.log_history[-1]["train_loss"], 4), os.path.exists("final"))
