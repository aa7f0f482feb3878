# A model that only one branch makes is divided there: elsewhere the name may not exist.

# first cell
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=4)

# case: a second model in a branch
params = list(model.parameters())
if with_head:
    head = torch.nn.Linear(2, 2)
    params += list(head.parameters())
optimizer = torch.optim.Adam(params)
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
# output
params = list(model.parameters())
if with_head:
    head = torch.nn.Linear(2, 2)
    params += list(head.parameters())
    ddp.parallelize(head)  # nb2ddp: each rank computes its part of every batch
optimizer = torch.optim.Adam(params)
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
ddp.check_replicas(model)

# case: the branch on one line
params = list(model.parameters())
if with_head: head = torch.nn.Linear(2, 2); params += list(head.parameters())
optimizer = torch.optim.Adam(params)
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
# output
params = list(model.parameters())
if with_head: head = torch.nn.Linear(2, 2); params += list(head.parameters())
if with_head:
    ddp.parallelize(head)  # nb2ddp: each rank computes its part of every batch
optimizer = torch.optim.Adam(params)
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
ddp.check_replicas(model)

# case: other parameters of one model
if whole:
    params = model.parameters()
else:
    params = model.lm_head.parameters()
optimizer = torch.optim.Adam(params)
for x in loader:
    model(x).sum().backward()
    optimizer.step()
# output
if whole:
    params = model.parameters()
else:
    params = model.lm_head.parameters()
optimizer = torch.optim.Adam(params)
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for x in loader:
    model(x).sum().backward()
    optimizer.step()
ddp.check_replicas(model)
