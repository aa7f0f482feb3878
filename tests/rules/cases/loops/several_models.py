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
# decline, line 1: nb2ddp cannot tell which models this optimizer trains (`for net in make_nets(3)`): bind the list of models to a name, and take the parameters from that list

# case: some of the models, by a condition
optimizer = torch.optim.Adam([p for i, net in enumerate(nets) if i != 1 for p in net.parameters() if p.requires_grad])
for x in loader:
    (nets[0](x) + nets[2](x)).sum().backward()
    optimizer.step()
# output
optimizer = torch.optim.Adam([p for i, net in enumerate(nets) if i != 1 for p in net.parameters() if p.requires_grad])
[ddp.parallelize(net) for i, net in enumerate(nets) if i != 1]  # nb2ddp: each rank computes its part of every batch
for x in loader:
    (nets[0](x) + nets[2](x)).sum().backward()
    optimizer.step()
[ddp.check_replicas(net) for i, net in enumerate(nets) if i != 1]

# case: an iterator that is made where it is used
optimizer = torch.optim.Adam([p for net in iter(nets) for p in net.parameters()])
for x in loader:
    sum(net(x).sum() for net in nets).backward()
    optimizer.step()
# output
optimizer = torch.optim.Adam([p for net in iter(nets) for p in net.parameters()])
[ddp.parallelize(net) for net in iter(nets)]  # nb2ddp: each rank computes its part of every batch
for x in loader:
    sum(net(x).sum() for net in nets).backward()
    optimizer.step()
[ddp.check_replicas(net) for net in iter(nets)]

# case: a filter
optimizer = torch.optim.Adam([p for net in filter(None, nets) for p in net.parameters()])
for x in loader:
    sum(net(x).sum() for net in nets).backward()
    optimizer.step()
# output
optimizer = torch.optim.Adam([p for net in filter(None, nets) for p in net.parameters()])
[ddp.parallelize(net) for net in filter(None, nets)]  # nb2ddp: each rank computes its part of every batch
for x in loader:
    sum(net(x).sum() for net in nets).backward()
    optimizer.step()
[ddp.check_replicas(net) for net in filter(None, nets)]

# case: an iterator with a name
models = iter(nets)
optimizer = torch.optim.Adam([p for net in models for p in net.parameters()])
for x in loader:
    sum(net(x).sum() for net in nets).backward()
    optimizer.step()
# decline, line 2: nb2ddp cannot tell which models this optimizer trains (`for net in models`): bind the list of models to a name, and take the parameters from that list

# case: a generator expression with a name
models = (net for net in nets)
optimizers = [torch.optim.Adam(net.parameters()) for net in models]
for x in loader:
    sum(net(x).sum() for net in nets).backward()
    optimizers[0].step()
# decline, line 2: nb2ddp cannot tell which models this optimizer trains (`for net in models`): bind the list of models to a name, and take the parameters from that list

# case: what a generator function gave
def trained_nets():
    yield from nets
models = trained_nets()
optimizer = torch.optim.Adam([p for net in models for p in net.parameters()])
for x in loader:
    sum(net(x).sum() for net in nets).backward()
    optimizer.step()
# decline, line 4: nb2ddp cannot tell which models this optimizer trains (`for net in models`): bind the list of models to a name, and take the parameters from that list

# case: the list of an iterator
models = list(iter(nets))
optimizer = torch.optim.Adam([p for net in models for p in net.parameters()])
for x in loader:
    sum(net(x).sum() for net in models).backward()
    optimizer.step()
# output
models = list(iter(nets))
optimizer = torch.optim.Adam([p for net in models for p in net.parameters()])
[ddp.parallelize(net) for net in models]  # nb2ddp: each rank computes its part of every batch
for x in loader:
    sum(net(x).sum() for net in models).backward()
    optimizer.step()
[ddp.check_replicas(net) for net in models]
