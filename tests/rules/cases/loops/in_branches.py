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

# case: a second model with an optimizer of its own
optimizer = torch.optim.Adam(model.parameters())
if with_head:
    head = torch.nn.Linear(2, 2)
    of_head = torch.optim.Adam(head.parameters())
for x in loader:
    model(x).sum().backward()
    optimizer.step()
# output
optimizer = torch.optim.Adam(model.parameters())
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
if with_head:
    head = torch.nn.Linear(2, 2)
    of_head = torch.optim.Adam(head.parameters())
    ddp.parallelize(head)  # nb2ddp: each rank computes its part of every batch
for x in loader:
    model(x).sum().backward()
    optimizer.step()
ddp.check_replicas(model)

# case: a second model whose parameters are taken elsewhere
if with_head:
    head = torch.nn.Linear(2, 2)
optimizer = torch.optim.Adam([*model.parameters(), *(head.parameters() if with_head else [])])
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
# output
if with_head:
    head = torch.nn.Linear(2, 2)
    ddp.parallelize(head)  # nb2ddp: each rank computes its part of every batch
optimizer = torch.optim.Adam([*model.parameters(), *(head.parameters() if with_head else [])])
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
ddp.check_replicas(model)

# case: a second model that one of several blocks of a branch makes
if with_head:
    try:
        head = torch.nn.Linear(2, 2).to("cuda")
    except RuntimeError:
        head = torch.nn.Linear(2, 2)
optimizer = torch.optim.Adam([*model.parameters(), *(head.parameters() if with_head else [])])
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
# output
if with_head:
    try:
        head = torch.nn.Linear(2, 2).to("cuda")
    except RuntimeError:
        head = torch.nn.Linear(2, 2)
    ddp.parallelize(head)  # nb2ddp: each rank computes its part of every batch
optimizer = torch.optim.Adam([*model.parameters(), *(head.parameters() if with_head else [])])
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
ddp.check_replicas(model)

# case: some of a model's parameters in a branch
params = model.parameters()
if only_head:
    params = model.lm_head.parameters()
optimizer = torch.optim.Adam(params)
for x in loader:
    model(x).sum().backward()
    optimizer.step()
# output
params = model.parameters()
if only_head:
    params = model.lm_head.parameters()
optimizer = torch.optim.Adam(params)
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for x in loader:
    model(x).sum().backward()
    optimizer.step()
ddp.check_replicas(model)

# case: a model that one of several branches makes
if kind == "a":
    net = torch.nn.Linear(2, 2)
    params = net.parameters()
elif kind == "b":
    net = torch.nn.Linear(2, 3)
    params = net.parameters()
optimizer = torch.optim.Adam(params)
for x in loader:
    net(x).sum().backward()
    optimizer.step()
# output
if kind == "a":
    net = torch.nn.Linear(2, 2)
    params = net.parameters()
elif kind == "b":
    net = torch.nn.Linear(2, 3)
    params = net.parameters()
optimizer = torch.optim.Adam(params)
ddp.parallelize(net)  # nb2ddp: each rank computes its part of every batch
for x in loader:
    net(x).sum().backward()
    optimizer.step()
ddp.check_replicas(net)

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
