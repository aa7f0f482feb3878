# What no loop trains is left alone.

# first cell
import torch
from torch import nn
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)

# case: evaluation
with torch.no_grad():
    for batch in loader:
        llm(**batch)

# case: generation over a data set
for row in data:
    print(llm.generate(**row))

# case: training that never runs
if False:
    for batch in loader:
        llm(**batch).loss.backward()

# case: a gradient that is only looked at
opt = AdamW(llm.parameters())
llm(**x).loss.backward()

# case: gradients of what a model is given
for x in loader:
    print(torch.autograd.grad(llm(x).sum(), x))

# case: an optimizer for a Trainer
opt = AdamW(llm.parameters())
t = SFTTrainer(llm, optimizers=(opt, None))
t.train()

# case: rows that an inner loop adds up stay whole on every rank, which the run says
opt = AdamW(llm.parameters())
for step in range(100):
    for i in range(4):
        (llm(**rows[i]).loss / 4).backward()
    opt.step()
# output
opt = AdamW(llm.parameters())
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
for step in range(100):
    for i in range(4):
        (ddp.only_outputs(llm, "loss")(**rows[i]).loss / 4).backward()
    opt.step()
ddp.check_replicas()

# case: several backward() in a Trainer's step, one in a function that it calls
from transformers import Trainer
def ascend(trainer, model, inputs, steps=3):
    for _ in range(steps):
        loss = trainer.compute_loss(model, inputs)
        loss.backward()
    return loss
class Adversarial(Trainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        for part in inputs["parts"]:
            self.accelerator.backward(model(part).sum())
        return ascend(self, model, inputs)
t = Adversarial(llm, train_dataset=data)
t.train()
