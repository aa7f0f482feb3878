# notebook: trainer.py
# The notebook as it is under torchrun: a step takes twice as many samples.
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(42)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
ids = torch.randint(5, 200, (64, 12)).tolist()
dataset = Dataset.from_dict({"input_ids": ids, "attention_mask": [[1] * 12] * 64, "labels": ids})

args = TrainingArguments(  # <- other-batch
    output_dir="out",
    per_device_train_batch_size=2,
    gradient_accumulation_steps=4,
    learning_rate=1e-3,
    num_train_epochs=1,
    logging_steps=1,
    save_strategy="no",
    remove_unused_columns=False,
    report_to="none",
    disable_tqdm=True,
)
trainer = Trainer(model=model, args=args, train_dataset=dataset)
trainer.train()

trainer.save_model("final")

if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
