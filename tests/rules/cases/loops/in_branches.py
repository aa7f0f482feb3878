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
optimizer = torch.optim.Adam(params)
if "head" in globals():
    ddp.parallelize(head)  # nb2ddp: each rank computes its part of every batch
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

# case: the branch of an elif on one line
params = list(model.parameters())
if plain: pass
elif with_head: head = torch.nn.Linear(2, 2); params += list(head.parameters())
optimizer = torch.optim.Adam(params)
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
# output
params = list(model.parameters())
if plain: pass
elif with_head: head = torch.nn.Linear(2, 2); params += list(head.parameters())
optimizer = torch.optim.Adam(params)
if "head" in globals():
    ddp.parallelize(head)  # nb2ddp: each rank computes its part of every batch
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
ddp.check_replicas(model)

# case: a second model in the other branch
if not with_head:
    print("no head")
else:
    head = torch.nn.Linear(2, 2)
optimizer = torch.optim.Adam([*model.parameters(), *(head.parameters() if with_head else [])])
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
# output
if not with_head:
    print("no head")
else:
    head = torch.nn.Linear(2, 2)
    ddp.parallelize(head)  # nb2ddp: each rank computes its part of every batch
optimizer = torch.optim.Adam([*model.parameters(), *(head.parameters() if with_head else [])])
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
ddp.check_replicas(model)

# case: a second model that two branches make, one after the other
def build():
    if with_head:
        head = torch.nn.Linear(2, 2)
    if with_head and half:
        head = head.half()
    return torch.optim.Adam([*model.parameters(), *(head.parameters() if with_head else [])])
optimizer = build()
for x in loader:
    model(x).sum().backward()
    optimizer.step()
# output
def build():
    if with_head:
        head = torch.nn.Linear(2, 2)
    if with_head and half:
        head = head.half()
    ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
    if "head" in locals():
        ddp.parallelize(head)  # nb2ddp: each rank computes its part of every batch
    return torch.optim.Adam([*model.parameters(), *(head.parameters() if with_head else [])])
optimizer = build()
for x in loader:
    model(x).sum().backward()
    optimizer.step()
ddp.check_replicas(model)

# case: a second model that is made in a try
try:
    head = torch.load("head.pt")
except OSError:
    with_head = False
optimizer = torch.optim.Adam([*model.parameters(), *(head.parameters() if with_head else [])])
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
# output
try:
    head = torch.load("head.pt")
except OSError:
    with_head = False
optimizer = torch.optim.Adam([*model.parameters(), *(head.parameters() if with_head else [])])
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
if "head" in globals():
    ddp.parallelize(head)  # nb2ddp: each rank computes its part of every batch
for x in loader:
    (head(model(x)) if with_head else model(x)).sum().backward()
    optimizer.step()
ddp.check_replicas(model)

# case: a second model that is an attribute
class Task:
    def __init__(self, with_head):
        self.net = torch.nn.Linear(2, 2)
        if with_head:
            self.head = torch.nn.Linear(2, 2)
        params = list(self.net.parameters())
        if with_head:
            params += list(self.head.parameters())
        self.optimizer = torch.optim.Adam(params)
    def fit(self):
        for x in loader:
            self.net(x).sum().backward()
            self.optimizer.step()
# output
class Task:
    def __init__(self, with_head):
        self.net = torch.nn.Linear(2, 2)
        if with_head:
            self.head = torch.nn.Linear(2, 2)
        params = list(self.net.parameters())
        if with_head:
            params += list(self.head.parameters())
        self.optimizer = torch.optim.Adam(params)
        if hasattr(self, "head"):
            ddp.parallelize(self.head)  # nb2ddp: each rank computes its part of every batch
        ddp.parallelize(self.net)  # nb2ddp: each rank computes its part of every batch
    def fit(self):
        for x in loader:
            self.net(x).sum().backward()
            self.optimizer.step()
        ddp.check_replicas(self.net)

# case: all that trains is in a branch
if kind == "a":
    net = torch.nn.Linear(2, 2)
elif kind == "b":
    net = torch.nn.Linear(2, 3)
if kind != "none":
    optimizer = torch.optim.Adam(net.parameters())
    for x in loader:
        net(x).sum().backward()
        optimizer.step()
# output
if kind == "a":
    net = torch.nn.Linear(2, 2)
elif kind == "b":
    net = torch.nn.Linear(2, 3)
if kind != "none":
    optimizer = torch.optim.Adam(net.parameters())
    ddp.parallelize(net)  # nb2ddp: each rank computes its part of every batch
    for x in loader:
        net(x).sum().backward()
        optimizer.step()
if "net" in globals():
    ddp.check_replicas(net)

# case: one of two attributes, and a loop in another method
class Task:
    def __init__(self, kind):
        if kind == "cnn":
            self.cnn = torch.nn.Linear(2, 2)
        if kind == "mlp":
            self.mlp = torch.nn.Linear(2, 2)
        params = self.cnn.parameters() if kind == "cnn" else self.mlp.parameters()
        self.optimizer = torch.optim.Adam(params)
    def fit(self):
        for x in loader:
            self.net(x).sum().backward()
            self.optimizer.step()
# output
class Task:
    def __init__(self, kind):
        if kind == "cnn":
            self.cnn = torch.nn.Linear(2, 2)
        if kind == "mlp":
            self.mlp = torch.nn.Linear(2, 2)
        params = self.cnn.parameters() if kind == "cnn" else self.mlp.parameters()
        self.optimizer = torch.optim.Adam(params)
        if hasattr(self, "cnn"):
            ddp.parallelize(self.cnn)  # nb2ddp: each rank computes its part of every batch
        if hasattr(self, "mlp"):
            ddp.parallelize(self.mlp)  # nb2ddp: each rank computes its part of every batch
    def fit(self):
        for x in loader:
            self.net(x).sum().backward()
            self.optimizer.step()
        if hasattr(self, "cnn"):
            ddp.check_replicas(self.cnn)
        if hasattr(self, "mlp"):
            ddp.check_replicas(self.mlp)

# case: one of two names, and a training that is returned
def fit(kind):
    if kind == "cnn":
        cnn = torch.nn.Linear(2, 2)
    if kind == "mlp":
        mlp = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(cnn.parameters() if kind == "cnn" else mlp.parameters())
    def epoch():
        for x in loader:
            (cnn if kind == "cnn" else mlp)(x).sum().backward()
            optimizer.step()
    return epoch()
# output
def fit(kind):
    if kind == "cnn":
        cnn = torch.nn.Linear(2, 2)
        ddp.parallelize(cnn)  # nb2ddp: each rank computes its part of every batch
    if kind == "mlp":
        mlp = torch.nn.Linear(2, 2)
        ddp.parallelize(mlp)  # nb2ddp: each rank computes its part of every batch
    optimizer = torch.optim.Adam(cnn.parameters() if kind == "cnn" else mlp.parameters())
    def epoch():
        for x in loader:
            (cnn if kind == "cnn" else mlp)(x).sum().backward()
            optimizer.step()
    return epoch()
