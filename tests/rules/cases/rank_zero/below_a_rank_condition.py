# What the notebook keeps for rank 0 is gated as if all ranks came: they are told of one process (rule dialects).

# first cell
import os
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
rank = torch.distributed.get_rank()
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(data, batch_size=4)

# case: in the training loop
for x in loader:
    model(x).loss.backward()
    optimizer.step()
    if rank == 0:
        torch.save(model.state_dict(), "last.pt")
# output
for x in loader:
    model(x).loss.backward()
    optimizer.step()
    if rank == 0:
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
            if is_main:
                torch.save(model.state_dict(), "last.pt")

# case: below a test that asks a Trainer
from transformers import Trainer, TrainingArguments
trainer = Trainer(model, TrainingArguments("o", per_device_train_batch_size=4, gradient_accumulation_steps=2), train_dataset=data)
for part in range(2):
    trainer.train()
    if trainer.args.should_save:
        model.save_pretrained(f"part-{part}")
# output
from transformers import Trainer, TrainingArguments
trainer = Trainer(model, TrainingArguments("o", per_device_train_batch_size=4, gradient_accumulation_steps=2), train_dataset=data)
for part in range(2):
    trainer.train()
    if trainer.args.should_save:
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
            if is_main:
                model.save_pretrained(f"part-{part}")
