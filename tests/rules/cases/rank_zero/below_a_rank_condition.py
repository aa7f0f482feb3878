# What the notebook's own test keeps for one rank is left to that test: the other ranks do not come there.

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

# case: before training, in an else
if rank != 0:
    pass
else:
    os.mkdir("out")
for x in loader:
    model(x).loss.backward()
    optimizer.step()

# case: an Accelerator's test, which all ranks pass
from accelerate import Accelerator
accelerator = Accelerator()
for x in loader:
    accelerator.backward(model(x).loss)
    optimizer.step()
    if accelerator.process_index == 0:
        torch.save(model.state_dict(), "last.pt")
# output
from accelerate import Accelerator
accelerator = Accelerator()
for x in loader:
    accelerator.backward(model(x).loss)
    optimizer.step()
    if accelerator.process_index == 0:
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
            if is_main:
                torch.save(model.state_dict(), "last.pt")

# case: behind the continue of the other ranks, by a name for the test
first = not rank
for x in loader:
    model(x).loss.backward()
    optimizer.step()
    if not first:
        continue
    torch.save(model.state_dict(), "last.pt")

# case: in a function that others leave
first = rank < 1
def keep():
    if not first:
        return
    torch.save(model.state_dict(), "last.pt")
for x in loader:
    model(x).loss.backward()
    optimizer.step()
    keep()
# output
first = rank < 1
def keep():
    if not first:
        return
    if ddp.is_main_process:  # nb2ddp: only rank 0 writes
        torch.save(model.state_dict(), "last.pt")
for x in loader:
    model(x).loss.backward()
    optimizer.step()
    keep()

# case: below a test that asks a Trainer, whose ranks may all think that they are the first
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
        if ddp.is_main_process:  # nb2ddp: only rank 0 writes
            model.save_pretrained(f"part-{part}")
