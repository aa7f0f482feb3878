# Where a model has no name, the run finds what an optimizer trains, from where models are made.

# first cell
import torch
from torch import nn
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

# case: a variable
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
params = list(llm.parameters())
opt = AdamW(params)
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
params = list(llm.parameters())
opt = AdamW(params)
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: variables
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
named = list(llm.named_parameters())
params = [p for n, p in named]
opt = AdamW(params)
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
named = list(llm.named_parameters())
params = [p for n, p in named]
opt = AdamW(params)
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: a library's model, by a method of its own
from processes import Process
model = Process()
opt = AdamW([{"params": model.hyperparameters()}])
for x in DataLoader(data):
    loss_of(model(x)).backward()
    opt.step()
# output
from processes import Process
model = Process()
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
opt = AdamW([{"params": model.hyperparameters()}])
for x in DataLoader(data):
    loss_of(model(x)).backward()
    opt.step()
ddp.check_replicas()

# case: the same beside a module
from processes import Process
model, noise = Process(), nn.Linear(1, 1)
opt = AdamW([*model.hyperparameters(), *noise.parameters()])
for x in DataLoader(data):
    loss_of(noise(model(x))).backward()
    opt.step()
# output
from processes import Process
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
model, noise = Process(), nn.Linear(1, 1)
opt = AdamW([*model.hyperparameters(), *noise.parameters()])
ddp.parallelize(noise)  # nb2ddp: each rank computes its part of every batch
for x in DataLoader(data):
    loss_of(noise(model(x))).backward()
    opt.step()
ddp.check_replicas()

# case: a head
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
opt = AdamW(llm.lm_head.parameters())
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
opt = AdamW(llm.lm_head.parameters())
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: a layer
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
opt = AdamW(llm.layers[0].parameters())
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
opt = AdamW(llm.layers[0].parameters())
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: groups
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
opt = AdamW([{'params': llm.a.parameters()}, {'params': llm.b.parameters(), 'lr': 1}])
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
opt = AdamW([{'params': llm.a.parameters()}, {'params': llm.b.parameters(), 'lr': 1}])
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: a list that grows
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
params = []
params += llm.a.parameters()
params.extend(llm.b.parameters())
opt = AdamW(params)
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
params = []
params += llm.a.parameters()
params.extend(llm.b.parameters())
opt = AdamW(params)
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: groups of a loop
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
groups = []
for name, p in llm.named_parameters():
    groups.append({'params': [p]})
opt = AdamW(groups)
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
groups = []
for name, p in llm.named_parameters():
    groups.append({'params': [p]})
opt = AdamW(groups)
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: a function
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
def groups_of(net):
    return [*net.parameters()]
opt = AdamW(groups_of(llm))
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
def groups_of(net):
    return [*net.parameters()]
opt = AdamW(groups_of(llm))
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: a function, by keyword
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
def groups_of(lr, net):
    return [*net.parameters()]
opt = AdamW(groups_of(net=llm, lr=1))
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
def groups_of(lr, net):
    return [*net.parameters()]
opt = AdamW(groups_of(net=llm, lr=1))
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: a model of an instance
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
class Agent:
    def __init__(self):
        self.policy = Net()
    def learn(self):
        for batch in loader:
            self.policy(batch).backward()
agent = Agent()
opt = AdamW(agent.policy.parameters())
agent.learn()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
class Agent:
    def __init__(self):
        self.policy = Net()
    def learn(self):
        for batch in loader:
            self.policy(batch).backward()
agent = Agent()
opt = AdamW(agent.policy.parameters())
agent.learn()
ddp.check_replicas()

# case: models in a dict
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
class Net(nn.Module):
    pass
nets = {'a': Net()}
opt = AdamW(nets['a'].parameters())
for batch in loader:
    nets['a'](batch).backward()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
class Net(nn.Module):
    pass
nets = {'a': Net()}
opt = AdamW(nets['a'].parameters())
for batch in loader:
    nets['a'](batch).backward()
ddp.check_replicas()

# case: no optimizer that can be seen
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
opt = make(llm)
for epoch in range(3):
    for batch in loader:
        llm(**batch).loss.backward()
    print(epoch)
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
opt = make(llm)
for epoch in range(3):
    for batch in loader:
        ddp.only_outputs(llm, "loss")(**batch).loss.backward()
    print(epoch)
ddp.check_replicas()

# case: no optimizer, and folds
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
class Net(nn.Module):
    pass
for fold in range(5):
    net = Net()
    for batch in loader:
        net(batch).backward()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
class Net(nn.Module):
    pass
for fold in range(5):
    net = Net()
    for batch in loader:
        net(batch).backward()
ddp.check_replicas()

# case: an optimizer that a function returns
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
def optimizer_of(net):
    return AdamW(net.parameters())
opt = optimizer_of(llm)
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
ddp.parallelize_trained()  # nb2ddp: each rank computes its part of every batch, of all models that optimizers train
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
def optimizer_of(net):
    ddp.parallelize(net)  # nb2ddp: each rank computes its part of every batch
    return AdamW(net.parameters())
opt = optimizer_of(llm)
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()
