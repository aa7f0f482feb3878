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
rank = torch.distributed.get_rank()
if rank == 0:
    for x in loader:
        model(x).loss.backward()
        optimizer.step()
# decline, line 4: `rank == 0` lets only some ranks reach backward(), and they would wait for the others there; take the condition away, since the script prints and saves on rank 0 by itself

# case: the call of a function with the loop, by a name for the test
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
def fit():
    for x in loader:
        model(x).loss.backward()
        optimizer.step()
is_main = torch.distributed.get_rank() == 0
if is_main:
    fit()
# decline, line 8: `is_main` lets only some ranks reach backward(), and they would wait for the others there; take the condition away, since the script prints and saves on rank 0 by itself

# case: an evaluation
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
trainer = Trainer(model, TrainingArguments("o", per_device_train_batch_size=4, gradient_accumulation_steps=2), train_dataset=data)
trainer.train()
if trainer.is_world_process_zero():
    trainer.evaluate()
# decline, line 5: `trainer.is_world_process_zero()` lets only some ranks reach evaluate(), and they would wait for the others there; take the condition away, since the script prints and saves on rank 0 by itself

# case: a test of whether there are ranks, and a print below a test of the rank
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
rank = torch.distributed.get_rank()
if rank != -1:
    print("several")
if verbose or True:
    for x in loader:
        model(x).loss.backward()
        optimizer.step()
        if rank == 0:
            print(x.mean())
# output
model = AutoModelForCausalLM.from_pretrained("m")
ddp.init_process_group()  # nb2ddp: join the process group
optimizer = torch.optim.AdamW(model.parameters())
rank = torch.distributed.get_rank()
if rank != -1:
    print("several")
if verbose or True:
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
# decline, line 8: `dist.get_rank() == 0` lets only some ranks reach backward(), and they would wait for the others there; take the condition away, since the script prints and saves on rank 0 by itself

# case: a test of the variable as it is
model = AutoModelForCausalLM.from_pretrained("m")
trainer = Trainer(model, TrainingArguments("o", per_device_train_batch_size=4, gradient_accumulation_steps=2), train_dataset=data)
trainer.train()
if torch.distributed.get_rank() == 0:
    trainer.evaluate()
# decline, line 4: `torch.distributed.get_rank() == 0` lets only some ranks reach evaluate(), and they would wait for the others there; take the condition away, since the script prints and saves on rank 0 by itself

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

# case: some ranks end the script
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
rank = torch.distributed.get_rank()
if rank != 0:
    raise SystemExit
for x in loader:
    model(x).loss.backward()
    optimizer.step()
# decline, line 4: `rank != 0` lets some ranks leave here (SystemExit), and the others would wait for them where they train together; take the condition away, since the script prints and saves on rank 0 by itself

# case: some ranks end the script by a function, below another test
import sys
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
if torch.distributed.get_rank() != 0:
    print("not the first")
    if "-v" in sys.argv:
        sys.exit(0)
for x in loader:
    model(x).loss.backward()
    optimizer.step()
# decline, line 4: `torch.distributed.get_rank() != 0` lets some ranks leave here (sys.exit()), ...

# case: some ranks return before the loop
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
def fit():
    if dist.get_rank() != 0:
        return
    for x in loader:
        model(x).loss.backward()
        optimizer.step()
fit()
# decline, line 4: `dist.get_rank() != 0` lets some ranks leave here (return), ...

# case: some ranks break out of the loop
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
rank = dist.get_rank()
for x in loader:
    model(x).loss.backward()
    optimizer.step()
    if rank == 1 and x.sum() > 3:
        break
# decline, line 7: `rank == 1 and x.sum() > 3` lets some ranks leave here (break), ...

# case: some ranks leave a round of the loop before its backward()
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
rank = dist.get_rank()
for x in loader:
    if rank > 0:
        continue
    model(x).loss.backward()
    optimizer.step()
# decline, line 5: `rank > 0` lets some ranks leave here (continue), ...

# case: some ranks leave what follows the training, or a loop of their own
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
rank = dist.get_rank()
def show():
    if rank != 0:
        return
    print("started")
def fit():
    for x in loader:
        model(x).loss.backward()
        optimizer.step()
        if rank != 0:
            continue
        print(x.mean())
    if rank != 0:
        return
    for name in ("a", "b"):
        if rank == 0:
            break
show()
fit()
if rank != 0:
    raise SystemExit
# output
model = AutoModelForCausalLM.from_pretrained("m")
ddp.init_process_group()  # nb2ddp: join the process group
optimizer = torch.optim.AdamW(model.parameters())
rank = dist.get_rank()
def show():
    if rank != 0:
        return
    print("started")
def fit():
    for x in loader:
        model(x).loss.backward()
        optimizer.step()
        if rank != 0:
            continue
        print(x.mean())
    if rank != 0:
        return
    for name in ("a", "b"):
        if rank == 0:
            break
show()
fit()
if rank != 0:
    raise SystemExit

# case: an Accelerator's rank, which is 0 on every rank of the script
from accelerate import Accelerator
accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
for x in loader:
    accelerator.backward(model(x).loss)
    optimizer.step()
    if accelerator.process_index != 0:
        break
# output
from accelerate import Accelerator
ddp.init_process_group()  # nb2ddp: join the process group
accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
for x in loader:
    accelerator.backward(model(x).loss)
    optimizer.step()
    if accelerator.process_index != 0:
        break

# case: an error that may happen on one rank ends the run, as it ends the notebook
import sys
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
local_rank = torch.distributed.get_rank()
if local_rank == 0 and missing:
    sys.exit("no data")
for x in loader:
    model(x).loss.backward()
    optimizer.step()
# output
import sys
model = AutoModelForCausalLM.from_pretrained("m")
ddp.init_process_group()  # nb2ddp: join the process group
optimizer = torch.optim.AdamW(model.parameters())
local_rank = torch.distributed.get_rank()
if local_rank == 0 and missing:
    sys.exit("no data")
for x in loader:
    model(x).loss.backward()
    optimizer.step()

# case: an error that a rank raises each time
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
if dist.get_rank() > 0:
    raise RuntimeError("one process only")
for x in loader:
    model(x).loss.backward()
    optimizer.step()
# decline, line 3: `dist.get_rank() > 0` lets some ranks leave here (RuntimeError), ...

# case: the other ranks end in an expression
import sys
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
rank = dist.get_rank()
rank == 0 or sys.exit()
for x in loader:
    model(x).loss.backward()
    optimizer.step()
# decline, line 5: `rank == 0` lets some ranks leave here (sys.exit()), ...

# case: a match, and every other rank
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
rank = dist.get_rank()
match rank:
    case 0:
        for x in loader:
            model(x).loss.backward()
            optimizer.step()
if rank % 2 == 0:
    for x in loader:
        model(x).loss.backward()
        optimizer.step()
# decline, line 9: `rank % 2 == 0` lets only some ranks reach backward(), ...
# decline, line 4: `rank` asks for the rank...

# case: the rounds that a rank takes for itself
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
rows = list(loader)
for x in rows[dist.get_rank()::dist.get_world_size()]:
    model(x).loss.backward()
    optimizer.step()
# decline, line 4: `dist.get_rank()` asks for the rank; nb2ddp converts what one process does, divides its batches and lets rank 0 write by itself. Write what one process has here, or start this code with torchrun as it is

# case: the rows that a rank takes for itself, in a loader
from torch.utils.data import Subset
from tqdm import tqdm
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
rank, world_size = dist.get_rank(), dist.get_world_size()
mine = Subset(data, list(range(rank, len(data), world_size)))
own = DataLoader(mine, batch_size=4)
for x in tqdm(own):
    model(x).loss.backward()
    optimizer.step()
# decline, line 6: `rank` asks for the rank...

# case: the rows that a rank takes for itself, in a Trainer
from datasets import load_dataset
model = AutoModelForCausalLM.from_pretrained("m")
rows = load_dataset("d").shard(num_shards=dist.get_world_size(), index=dist.get_rank()).map(tokenize)
trainer = Trainer(model, TrainingArguments("o", per_device_train_batch_size=4, gradient_accumulation_steps=2), train_dataset=rows)
trainer.train()
# decline, line 3: `dist.get_world_size()` asks for the number of ranks...

# case: a progress bar on rank 0
from tqdm import tqdm
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
for x in tqdm(loader, disable=dist.get_rank() != 0):
    model(x).loss.backward()
    optimizer.step()
# output
from tqdm import tqdm
model = AutoModelForCausalLM.from_pretrained("m")
ddp.init_process_group()  # nb2ddp: join the process group
optimizer = torch.optim.AdamW(model.parameters())
for x in tqdm(loader, disable=dist.get_rank() != 0):
    model(x).loss.backward()
    optimizer.step()

# case: a loop that rank 0 ends by itself
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
rank = dist.get_rank()
stop = False
while not stop:
    for x in loader:
        model(x).loss.backward()
        optimizer.step()
    if rank == 0:
        stop = accuracy(model) > 0.9
# decline, line 5: `not stop` may end this loop on some ranks alone, and the others would wait for them in backward(); let all ranks compute it alike, since each has the same model and the same losses
