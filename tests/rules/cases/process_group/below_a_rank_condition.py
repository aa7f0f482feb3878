# What all ranks do together stands below a test of the rank.

# first cell
import os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
loader = DataLoader(data, batch_size=4)

# case: a training loop
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
rank = int(os.environ.get("RANK", 0))
if rank == 0:
    for x in loader:
        model(x).loss.backward()
        optimizer.step()
# decline, line 4: `rank == 0` lets some ranks alone come to backward(), and they would wait for the others there; take the condition away, since the script prints and saves on rank 0 by itself

# case: the call of a function with the loop, by a name for the test
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
def fit():
    for x in loader:
        model(x).loss.backward()
        optimizer.step()
is_main = os.environ.get("LOCAL_RANK", "0") == "0"
if is_main:
    fit()
# decline, line 8: `is_main` lets some ranks alone come to backward(), and they would wait for the others there; take the condition away, since the script prints and saves on rank 0 by itself

# case: an evaluation
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
trainer = Trainer(model, TrainingArguments("o", per_device_train_batch_size=4, gradient_accumulation_steps=2), train_dataset=data)
trainer.train()
if trainer.is_world_process_zero():
    trainer.evaluate()
# decline, line 5: `trainer.is_world_process_zero()` lets some ranks alone come to evaluate(), and they would wait for the others there; take the condition away, since the script prints and saves on rank 0 by itself

# case: a test of whether there are ranks, and a print below a test of the rank
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
rank = int(os.environ.get("RANK", -1))
if rank != -1:
    print("several")
if rank >= 0 or True:
    for x in loader:
        model(x).loss.backward()
        optimizer.step()
        if rank == 0:
            print(x.mean())
# output
model = AutoModelForCausalLM.from_pretrained("m")
ddp.init_process_group()  # nb2ddp: join the process group
optimizer = torch.optim.AdamW(model.parameters())
rank = int(os.environ.get("RANK", -1))
if rank != -1:
    print("several")
if rank >= 0 or True:
    for x in loader:
        model(x).loss.backward()
        optimizer.step()
        if rank == 0:
            print(x.mean())

# case: a rank of adapters
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
rank = 16
if rank == 16:
    for x in loader:
        model(x).loss.backward()
        optimizer.step()
# output
model = AutoModelForCausalLM.from_pretrained("m")
ddp.init_process_group()  # nb2ddp: join the process group
optimizer = torch.optim.AdamW(model.parameters())
rank = 16
if rank == 16:
    for x in loader:
        model(x).loss.backward()
        optimizer.step()

# case: a function that all ranks call, and one alone
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
def fit():
    for x in loader:
        model(x).loss.backward()
        optimizer.step()
fit()
if dist.get_rank() == 0:
    fit()
# decline, line 8: `dist.get_rank() == 0` lets some ranks alone come to backward(), and they would wait for the others there; take the condition away, since the script prints and saves on rank 0 by itself

# case: a test of the variable as it is
model = AutoModelForCausalLM.from_pretrained("m")
trainer = Trainer(model, TrainingArguments("o", per_device_train_batch_size=4, gradient_accumulation_steps=2), train_dataset=data)
trainer.train()
if os.environ.get("RANK", "0") == "0":
    trainer.evaluate()
# decline, line 4: `os.environ.get("RANK", "0") == "0"` lets some ranks alone come to evaluate(), and they would wait for the others there; take the condition away, since the script prints and saves on rank 0 by itself

# case: a parameter that is the rank of an adapter
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
def run(rank):
    if rank == 8:
        for x in loader:
            model(x).loss.backward()
            optimizer.step()
run(8)
# output
model = AutoModelForCausalLM.from_pretrained("m")
ddp.init_process_group()  # nb2ddp: join the process group
optimizer = torch.optim.AdamW(model.parameters())
def run(rank):
    if rank == 8:
        for x in loader:
            model(x).loss.backward()
            optimizer.step()
run(8)
