# The model whose parameters an optimizer is given by its name is divided.

# first cell
import torch
from torch import nn
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)

# case: directly
opt = AdamW(llm.parameters(), lr=1e-4)
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
opt = AdamW(llm.parameters(), lr=1e-4)
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: another class
opt = torch.optim.SGD(params=llm.parameters(), lr=1e-4)
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
opt = torch.optim.SGD(params=llm.parameters(), lr=1e-4)
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: a class by its name
opt = getattr(torch.optim, "Adam")(llm.parameters())
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
opt = getattr(torch.optim, "Adam")(llm.parameters())
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: a class in a variable
optimizer_class = AdamW
opt = optimizer_class(llm.parameters())
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
optimizer_class = AdamW
opt = optimizer_class(llm.parameters())
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: a list
opt = AdamW([p for p in llm.parameters() if p.requires_grad])
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
opt = AdamW([p for p in llm.parameters() if p.requires_grad])
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: a filter
opt = AdamW(filter(lambda p: p.requires_grad, llm.parameters()))
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
opt = AdamW(filter(lambda p: p.requires_grad, llm.parameters()))
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: beside a frozen model
ref = AutoModelForCausalLM.from_pretrained('r')
for p in ref.parameters():
    p.requires_grad = False
opt = AdamW([p for p in llm.parameters()])
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
ref = AutoModelForCausalLM.from_pretrained('r')
for p in ref.parameters():
    p.requires_grad = False
opt = AdamW([p for p in llm.parameters()])
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: a module that tells itself what is trained
class Siren(nn.Module):
    def parameters(self):
        return self.net.parameters()
siren = Siren()
opt = AdamW(siren.parameters())
for i in range(9):
    (siren(grid) ** 2).sum().backward()
    opt.step()
# output
class Siren(nn.Module):
    def parameters(self):
        return self.net.parameters()
siren = Siren()
opt = AdamW(siren.parameters())
ddp.parallelize(siren)  # nb2ddp: each rank computes its part of every batch
for i in range(9):
    (siren(grid) ** 2).sum().backward()
    opt.step()
ddp.check_replicas()

# case: a class of the notebook takes its name over from a library's, which a function imports once more
from transformers import Trainer
class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = AdamW(model.parameters())
    def train(self, rows):
        for row in rows:
            self.model(row).mean().backward()
            self.optimizer.step()
def of_library(model):
    from transformers import Trainer
    return Trainer(model)
trainer = Trainer(llm)
trainer.train(loader)
# output
from transformers import Trainer
class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = AdamW(model.parameters())
        ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
    def train(self, rows):
        for row in rows:
            self.model(row).mean().backward()
            self.optimizer.step()
def of_library(model):
    from transformers import Trainer
    return Trainer(model)
trainer = Trainer(llm)
trainer.train(loader)
ddp.check_replicas()
