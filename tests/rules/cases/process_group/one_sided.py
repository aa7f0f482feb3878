# What changes the training of some ranks alone.

# first cell
import os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments
rank = torch.distributed.get_rank()
loader = DataLoader(data, batch_size=4)

# case: an optimizer's step
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
for x in loader:
    model(x).loss.backward()
    if rank == 0:
        optimizer.step()
# decline, line 7: `rank == 0` lets some ranks alone call `optimizer.step()`, and the ranks would train different models; take the condition away

# case: a scheduler's step, by another name
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
decay = scheduler
lower = torch.optim.lr_scheduler.StepLR(optimizer, 1)
for x in loader:
    model(x).loss.backward()
    optimizer.step()
    not rank and lower.step()
# decline, line 9: `not rank` lets some ranks alone call `lower.step()`...

# case: the model with gradients
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
for x in loader:
    model(x).loss.backward()
    optimizer.step()
    if rank == 0:
        print(model(x).logits.mean())
# decline, line 8: `rank == 0` lets some ranks alone call `model(x)`, which all ranks compute together where gradients are kept; put it below `with torch.no_grad():`, or take the condition away

# case: a callback that stops one rank
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero and state.global_step > 5:
            control.should_training_stop = True
trainer = Trainer(model, TrainingArguments("o", per_device_train_batch_size=4, gradient_accumulation_steps=2), train_dataset=data, callbacks=[Stop()])
trainer.train()
# decline, line 7: `state.is_world_process_zero and state.global_step > 5` lets some ranks alone set `control.should_training_stop`, and the others would wait for them; take the condition away, since each rank knows the same state

# case: the model without gradients, a profiler's step, and all of it after training
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
@torch.no_grad()
def show(x):
    print(model(x).logits.mean())
for x in loader:
    model(x).loss.backward()
    optimizer.step()
    scheduler.step()
    if rank == 0:
        profiler.step()
        with torch.inference_mode():
            print(model(x).logits.mean())
        show(x)
if rank == 0:
    print(model(x).logits.mean())
    optimizer.zero_grad()
# output
model = AutoModelForCausalLM.from_pretrained("m")
ddp.init_process_group()  # nb2ddp: join the process group
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
@torch.no_grad()
def show(x):
    print(model(x).logits.mean())
for x in loader:
    model(x).loss.backward()
    optimizer.step()
    scheduler.step()
    if rank == 0:
        profiler.step()
        with torch.inference_mode():
            print(model(x).logits.mean())
        show(x)
if rank == 0:
    print(model(x).logits.mean())
    optimizer.zero_grad()
