# A loop stays as it is, wherever it stands; its models are divided, and compared after it.

# first cell
import torch
from torch import nn
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)

# case: a module is told by its class
net = torch.nn.Linear(2, 1)
opt = AdamW(net.parameters())
for rows in data:
    if type(net) is torch.nn.Linear and net.__class__ is not torch.nn.Conv2d and type(rows) is list:
        net(rows).backward()
        opt.step()
# output
net = torch.nn.Linear(2, 1)
opt = AdamW(net.parameters())
ddp.parallelize(net)  # nb2ddp: each rank computes its part of every batch
for rows in data:
    if type(net) == torch.nn.Linear and net.__class__ != torch.nn.Conv2d and type(rows) is list:
        net(rows).backward()
        opt.step()
ddp.check_replicas()

# case: methods that decorators put into a class, in place of its own too
import d2l
class Teacher:
    def __init__(self, net):
        self.net, self.opt = net, AdamW(net.parameters())
    def fit_epoch(self, rows):
        raise NotImplementedError
    def fit(self, rows):
        for self.epoch in range(2):
            self.fit_epoch(rows)
@d2l.add_to_class(Teacher)
def fit_epoch(self, rows):
    for x in rows:
        self.learn(x)
    with open("log.txt", "w") as log:
        log.write("an epoch")
@patch
def learn(self: Teacher, x):
    self.opt.zero_grad()
    self.net(x).backward()
    self.opt.step()
Teacher(nn.Linear(2, 1)).fit(loader)
# output
import d2l
class Teacher:
    def __init__(self, net):
        ddp.parallelize(net)  # nb2ddp: each rank computes its part of every batch
        self.net, self.opt = net, AdamW(net.parameters())
    def fit_epoch(self, rows):
        raise NotImplementedError
    def fit(self, rows):
        for self.epoch in range(2):
            self.fit_epoch(rows)
@d2l.add_to_class(Teacher)
def fit_epoch(self, rows):
    for x in rows:
        self.learn(x)
    with open("log.txt", "w") as log:
        log.write("an epoch")
@patch
def learn(self: Teacher, x):
    self.opt.zero_grad()
    self.net(x).backward()
    self.opt.step()
Teacher(nn.Linear(2, 1)).fit(loader)
ddp.check_replicas()

# case: epochs
opt = AdamW(llm.parameters())
for epoch in range(3):
    for batch in loader:
        llm(**batch).loss.backward()
    print(epoch)
# output
opt = AdamW(llm.parameters())
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
for epoch in range(3):
    for batch in loader:
        ddp.only_outputs(llm, "loss")(**batch).loss.backward()
    print(epoch)
ddp.check_replicas()

# case: two loops
opt = AdamW(llm.parameters())
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
for epoch in range(3):
    for batch in loader:
        llm(**batch).loss.backward()
    print(epoch)
# output
opt = AdamW(llm.parameters())
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()
for epoch in range(3):
    for batch in loader:
        ddp.only_outputs(llm, "loss")(**batch).loss.backward()
    print(epoch)
ddp.check_replicas()

# case: while
opt = AdamW(llm.parameters())
while step < 9:
    llm(**batch).loss.backward()
    step += 1
# output
opt = AdamW(llm.parameters())
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
while step < 9:
    ddp.only_outputs(llm, "loss")(**batch).loss.backward()
    step += 1
ddp.check_replicas()

# case: in an if
opt = AdamW(llm.parameters())
if train:
    for b in loader:
        llm(b).backward()
# output
opt = AdamW(llm.parameters())
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
if train:
    for b in loader:
        llm(b).backward()
ddp.check_replicas()

# case: a step in a function
opt = AdamW(llm.parameters())
def step(batch):
    llm(**batch).loss.backward()
for epoch in range(3):
    for batch in loader:
        step(batch)
# output
opt = AdamW(llm.parameters())
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
def step(batch):
    ddp.only_outputs(llm, "loss")(**batch).loss.backward()
for epoch in range(3):
    for batch in loader:
        step(batch)
ddp.check_replicas()

# case: a function that is given the model
opt = AdamW(llm.parameters())
def train(net, batches):
    for batch in batches:
        net(**batch).loss.backward()
    return net
for epoch in range(3):
    train(llm, loader)
# output
opt = AdamW(llm.parameters())
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
def train(net, batches):
    for batch in batches:
        ddp.only_outputs(net, "loss")(**batch).loss.backward()
    return net
for epoch in range(3):
    train(llm, loader)
ddp.check_replicas()

# case: a function that makes the optimizer
def train(net, batches):
    opt = AdamW(net.parameters())
    for batch in batches:
        net(**batch).loss.backward()
    return net
train(llm, loader)
# output
def train(net, batches):
    opt = AdamW(net.parameters())
    ddp.parallelize(net)  # nb2ddp: each rank computes its part of every batch
    for batch in batches:
        ddp.only_outputs(net, "loss")(**batch).loss.backward()
    ddp.check_replicas()
    return net
train(llm, loader)

# case: a generator
opt = AdamW(llm.parameters())
def losses():
    for batch in loader:
        loss = llm(**batch).loss
        loss.backward()
        yield loss
for loss in losses():
    print(loss)
# output
opt = AdamW(llm.parameters())
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
def losses():
    for batch in loader:
        loss = ddp.only_outputs(llm, "loss")(**batch).loss
        loss.backward()
        yield loss
for loss in losses():
    print(loss)
ddp.check_replicas()

# case: main()
def epoch(net, opt):
    for batch in loader:
        net(**batch).loss.backward()
def main():
    net = AutoModelForCausalLM.from_pretrained('m')
    opt = AdamW(net.parameters())
    for i in range(3):
        epoch(net, opt)
if __name__ == '__main__':
    main()
# output
def epoch(net, opt):
    for batch in loader:
        ddp.only_outputs(net, "loss")(**batch).loss.backward()
def main():
    net = AutoModelForCausalLM.from_pretrained('m')
    opt = AdamW(net.parameters())
    ddp.parallelize(net)  # nb2ddp: each rank computes its part of every batch
    for i in range(3):
        epoch(net, opt)
    ddp.check_replicas()
if __name__ == '__main__':
    main()

# case: a class
class Fitter:
    def __init__(self, model):
        self.model = model
        self.opt = AdamW(self.model.parameters())
    def fit(self, loader):
        for epoch in range(3):
            for batch in loader:
                self.step(batch)
    def step(self, batch):
        self.model(**batch).loss.backward()
Fitter(llm).fit(loader)
# output
class Fitter:
    def __init__(self, model):
        self.model = model
        self.opt = AdamW(self.model.parameters())
        ddp.parallelize(self.model)  # nb2ddp: each rank computes its part of every batch
    def fit(self, loader):
        for epoch in range(3):
            for batch in loader:
                self.step(batch)
    def step(self, batch):
        ddp.only_outputs(self.model, "loss")(**batch).loss.backward()
Fitter(llm).fit(loader)
ddp.check_replicas()

# case: a class that is derived
class Base:
    def fit(self):
        for batch in loader:
            self.step(batch)
class Fitter(Base):
    def __init__(self, model):
        self.model = model
        self.opt = AdamW(self.model.parameters())
    def step(self, batch):
        self.model(**batch).loss.backward()
fitter = Fitter(llm)
fitter.fit()
# output
class Base:
    def fit(self):
        for batch in loader:
            self.step(batch)
class Fitter(Base):
    def __init__(self, model):
        self.model = model
        self.opt = AdamW(self.model.parameters())
        ddp.parallelize(self.model)  # nb2ddp: each rank computes its part of every batch
    def step(self, batch):
        ddp.only_outputs(self.model, "loss")(**batch).loss.backward()
fitter = Fitter(llm)
fitter.fit()
ddp.check_replicas()

# case: a class whose optimizer gets what it was given
class Fitter:
    def __init__(self, lr, model):
        self.model = model
        self.opt = AdamW(model.parameters(), lr=lr)
    def fit(self):
        for batch in loader:
            self.model(**batch).loss.backward()
fitter = Fitter(1, llm)
fitter.fit()
# output
class Fitter:
    def __init__(self, lr, model):
        self.model = model
        self.opt = AdamW(model.parameters(), lr=lr)
        ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
    def fit(self):
        for batch in loader:
            self.model(**batch).loss.backward()
fitter = Fitter(1, llm)
fitter.fit()
ddp.check_replicas()

# case: a class that is given the optimizer
class Fitter:
    def __init__(self, model, opt):
        self.model = model
    def fit(self):
        for batch in loader:
            self.model(**batch).loss.backward()
opt = AdamW(llm.parameters())
fitter = Fitter(llm, opt)
fitter.fit()
# output
class Fitter:
    def __init__(self, model, opt):
        self.model = model
    def fit(self):
        for batch in loader:
            self.model(**batch).loss.backward()
opt = AdamW(llm.parameters())
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
fitter = Fitter(llm, opt)
fitter.fit()
ddp.check_replicas()

# case: two models
class Net(nn.Module):
    pass
gen = Net()
critic = Net()
opt_g = AdamW(gen.parameters())
opt_c = AdamW(critic.parameters())
for batch in loader:
    critic(gen(batch)).backward()
    opt_c.step()
    critic(gen(batch)).backward()
    opt_g.step()
# output
class Net(nn.Module):
    pass
gen = Net()
critic = Net()
opt_g = AdamW(gen.parameters())
ddp.parallelize(gen)  # nb2ddp: each rank computes its part of every batch
opt_c = AdamW(critic.parameters())
ddp.parallelize(critic)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    critic(gen(batch)).backward()
    opt_c.step()
    critic(gen(batch)).backward()
    opt_g.step()
ddp.check_replicas()

# case: two models of one optimizer
class Net(nn.Module):
    pass
one = Net()
two = Net()
opt = AdamW([*one.parameters(), *two.parameters()])
for batch in loader:
    two(one(batch)).backward()
# output
class Net(nn.Module):
    pass
one = Net()
two = Net()
opt = AdamW([*one.parameters(), *two.parameters()])
ddp.parallelize(one)  # nb2ddp: each rank computes its part of every batch
ddp.parallelize(two)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    two(one(batch)).backward()
ddp.check_replicas()

# case: one model after another
opt = AdamW(llm.parameters())
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
del llm, opt
class Net(nn.Module):
    pass
net = Net()
opt = AdamW(net.parameters())
for batch in loader:
    net(batch).backward()
# output
opt = AdamW(llm.parameters())
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    loss = ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()
del llm, opt
class Net(nn.Module):
    pass
net = Net()
opt = AdamW(net.parameters())
ddp.parallelize(net)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    net(batch).backward()
ddp.check_replicas()

# case: folds
class Net(nn.Module):
    pass
for fold in range(5):
    net = Net()
    opt = AdamW(net.parameters())
    for epoch in range(3):
        for batch in loader:
            net(batch).backward()
    del net
# output
class Net(nn.Module):
    pass
for fold in range(5):
    net = Net()
    opt = AdamW(net.parameters())
    ddp.parallelize(net)  # nb2ddp: each rank computes its part of every batch
    for epoch in range(3):
        for batch in loader:
            net(batch).backward()
    ddp.check_replicas()
    del net

# case: folds of one model
opt = AdamW(llm.parameters())
for fold in range(5):
    for batch in loader:
        llm(**batch).loss.backward()
# output
opt = AdamW(llm.parameters())
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
for fold in range(5):
    for batch in loader:
        ddp.only_outputs(llm, "loss")(**batch).loss.backward()
ddp.check_replicas()

# case: folds through a function
class Net(nn.Module):
    pass
def train(net):
    opt = AdamW(net.parameters())
    for batch in loader:
        net(batch).backward()
for fold in range(5):
    train(Net())
# output
class Net(nn.Module):
    pass
def train(net):
    opt = AdamW(net.parameters())
    ddp.parallelize(net)  # nb2ddp: each rank computes its part of every batch
    for batch in loader:
        net(batch).backward()
    ddp.check_replicas()
for fold in range(5):
    train(Net())

# case: what a function returns
def epoch(net):
    for batch in loader:
        net(**batch).loss.backward()
    return 1
def main(net):
    opt = AdamW(net.parameters())
    epoch(net)
    print(1)
main(llm)
# output
def epoch(net):
    for batch in loader:
        ddp.only_outputs(net, "loss")(**batch).loss.backward()
    return 1
def main(net):
    opt = AdamW(net.parameters())
    ddp.parallelize(net)  # nb2ddp: each rank computes its part of every batch
    epoch(net)
    ddp.check_replicas()
    print(1)
main(llm)

# case: what a function returns of its training
def epoch(net):
    for batch in loader:
        net(**batch).loss.backward()
    return 1
def main(net):
    opt = AdamW(net.parameters())
    return epoch(net)
main(llm)
# output
def epoch(net):
    for batch in loader:
        ddp.only_outputs(net, "loss")(**batch).loss.backward()
    return 1
def main(net):
    opt = AdamW(net.parameters())
    ddp.parallelize(net)  # nb2ddp: each rank computes its part of every batch
    return ddp.check_replicas(result=epoch(net))
main(llm)

# case: a branch of a step that makes an optimizer of its own
class Net(nn.Module):
    pass
gen, critic = Net(), Net()
opt = AdamW(critic.parameters())
for batch in loader:
    critic(batch).backward()
    opt.step()
    if search:
        own = AdamW(gen.parameters())
        for i in range(3):
            critic(gen(batch)).backward()
            own.step()
# output
class Net(nn.Module):
    pass
gen, critic = Net(), Net()
opt = AdamW(critic.parameters())
ddp.parallelize(critic)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    critic(batch).backward()
    opt.step()
    if search:
        own = AdamW(gen.parameters())
        ddp.parallelize(gen)  # nb2ddp: each rank computes its part of every batch
        for i in range(3):
            critic(gen(batch)).backward()
            own.step()
ddp.check_replicas()

# case: folds after a training
opt = AdamW(llm.parameters())
for batch in loader:
    llm(**batch).loss.backward()
class Net(nn.Module):
    pass
for fold in range(5):
    net = Net()
    first = AdamW(net.parameters(), lr=1)
    for batch in loader:
        net(batch).backward()
    opt = AdamW(net.parameters())
    for batch in loader:
        net(batch).backward()
# output
opt = AdamW(llm.parameters())
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    ddp.only_outputs(llm, "loss")(**batch).loss.backward()
ddp.check_replicas()
class Net(nn.Module):
    pass
for fold in range(5):
    net = Net()
    first = AdamW(net.parameters(), lr=1)
    ddp.parallelize(net)  # nb2ddp: each rank computes its part of every batch
    for batch in loader:
        net(batch).backward()
    ddp.check_replicas()
    opt = AdamW(net.parameters())
    ddp.parallelize(net)  # nb2ddp: each rank computes its part of every batch
    for batch in loader:
        net(batch).backward()
    ddp.check_replicas()
ddp.check_replicas()

# case: a method of one step in the loop of another method is no training by itself
class Agent:
    def __init__(self):
        self.net = nn.Linear(8, 1)
        self.optimizer = AdamW(self.net.parameters())
    def optimizer_step(self, optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    def update(self, x):
        for i in range(20):
            self.optimizer_step(self.optimizer, self.net(x[i]).mean())
agent = Agent()
for _ in range(3):
    agent.update(x)
# output
class Agent:
    def __init__(self):
        self.net = nn.Linear(8, 1)
        self.optimizer = AdamW(self.net.parameters())
        ddp.parallelize(self.net)  # nb2ddp: each rank computes its part of every batch
    def optimizer_step(self, optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    def update(self, x):
        for i in range(20):
            self.optimizer_step(self.optimizer, self.net(x[i]).mean())
agent = Agent()
for _ in range(3):
    agent.update(x)
ddp.check_replicas()
