# Models that a comprehension or a loop gives an optimizer are each divided; the layers of one model are that model.

# first cell
import itertools
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("m")
nets = [torch.nn.Linear(2, 2) for _ in range(3)]
loader = DataLoader(data, batch_size=4)

# case: an optimizer for each
optimizers = {name: torch.optim.Adam(net.parameters()) for name, net in enumerate(nets)}
for x in loader:
    for name, net in enumerate(nets):
        net(x).sum().backward()
        optimizers[name].step()
# output
optimizers = {name: torch.optim.Adam(net.parameters()) for name, net in enumerate(nets)}
[ddp.parallelize(net) for name, net in enumerate(nets)]  # nb2ddp: each rank computes its part of every batch
for x in loader:
    for name, net in enumerate(nets):
        net(x).sum().backward()
        optimizers[name].step()
[ddp.check_replicas(net) for name, net in enumerate(nets)]

# case: one optimizer for all
optimizer = torch.optim.Adam(itertools.chain(*[net.parameters() for net in nets]))
for x in loader:
    sum(net(x).sum() for net in nets).backward()
    optimizer.step()
# output
optimizer = torch.optim.Adam(itertools.chain(*[net.parameters() for net in nets]))
[ddp.parallelize(net) for net in nets]  # nb2ddp: each rank computes its part of every batch
for x in loader:
    sum(net(x).sum() for net in nets).backward()
    optimizer.step()
[ddp.check_replicas(net) for net in nets]

# case: parameters that a loop collects
trained = []
for net in nets:
    trained += list(net.parameters())
optimizer = torch.optim.Adam(trained)
for x in loader:
    sum(net(x).sum() for net in nets).backward()
    optimizer.step()
# output
trained = []
for net in nets:
    trained += list(net.parameters())
optimizer = torch.optim.Adam(trained)
[ddp.parallelize(net) for net in nets]  # nb2ddp: each rank computes its part of every batch
for x in loader:
    sum(net(x).sum() for net in nets).backward()
    optimizer.step()
[ddp.check_replicas(net) for net in nets]

# case: the layers of a model
optimizer = torch.optim.Adam([{"params": layer.parameters()} for layer in list(model.children())[-2:]])
for x in loader:
    model(x).loss.backward()
    optimizer.step()
# output
optimizer = torch.optim.Adam([{"params": layer.parameters()} for layer in list(model.children())[-2:]])
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for x in loader:
    model(x).loss.backward()
    optimizer.step()
ddp.check_replicas(model)

# case: layers and groups that are zipped
optimizer = torch.optim.Adam([{"params": l.parameters(), "lr": r} for r, l in zip(rates, model.model.layers)])
for x in loader:
    model(x).loss.backward()
    optimizer.step()
# output
optimizer = torch.optim.Adam([{"params": l.parameters(), "lr": r} for r, l in zip(rates, model.model.layers)])
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for x in loader:
    model(x).loss.backward()
    optimizer.step()
ddp.check_replicas(model)

# case: models that are made on the way
optimizers = [torch.optim.Adam(net.parameters()) for net in make_nets(3)]
for x in loader:
    model(x).loss.backward()
    optimizers[0].step()
# decline, line 1: nb2ddp cannot tell which models an optimizer is given here (`for net in make_nets(3)`): give their list a name, and take the parameters from that
