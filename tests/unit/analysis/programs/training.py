# Training in functions and methods: the answer is the statement that trains last.

# first cell
import torch
from torch import nn
class Net(nn.Module):
    pass
model = Net()

# case: a method
class Fitter:
    def __init__(self, model, loader):
        self.model = model
    def fit(self):
        for batch in self.loader:
            self.model(batch).backward()
# %%
fitter = Fitter(model, loader)
# %%
fitter.fit()
# %%
evaluate(model)
# answer: fitter.fit()

# case: a method of what a function makes
class Fitter:
    def __init__(self, model, loader):
        self.model = model
    def fit(self):
        for batch in self.loader:
            self.model(batch).backward()
# %%
def make(m):
    return Fitter(m, loader)
fitter = make(model)
# %%
fitter.fit()
# %%
evaluate(model)
# answer: fitter.fit()

# case: a method of what stands in a list
class Fitter:
    def __init__(self, model, loader):
        self.model = model
    def fit(self):
        for batch in self.loader:
            self.model(batch).backward()
# %%
fitters = [Fitter(model, loader)]
# %%
fitters[0].fit()
# %%
evaluate(model)
# answer: fitters[0].fit()

# case: a method of an instance without a name
class Fitter:
    def __init__(self, model, loader):
        self.model = model
    def fit(self):
        for batch in self.loader:
            self.model(batch).backward()
# %%
Fitter(model, loader).fit()
# %%
evaluate(model)
# answer: Fitter(model, loader).fit()

# case: a method of an attribute
class Fitter:
    def __init__(self, model, loader):
        self.model = model
    def fit(self):
        for batch in self.loader:
            self.model(batch).backward()
# %%
class App:
    def __init__(self):
        self.fitter = Fitter(model, loader)
    def run(self):
        self.fitter.fit()
# %%
app = App()
# %%
app.run()
# %%
evaluate(model)
# answer: app.run()

# case: a method of a base
class Fitter:
    def __init__(self, model, loader):
        self.model = model
    def fit(self):
        for batch in self.loader:
            self.model(batch).backward()
# %%
class Mine(Fitter):
    pass
# %%
mine = Mine(model, x)
# %%
mine.fit()
# %%
evaluate(model)
# answer: mine.fit()

# case: super()
class Fitter:
    def __init__(self, model, loader):
        self.model = model
    def fit(self):
        for batch in self.loader:
            self.model(batch).backward()
# %%
class Mine(Fitter):
    def fit(self):
        super().fit()
# %%
mine = Mine(model, x)
# %%
mine.fit()
# %%
evaluate(model)
# answer: mine.fit()

# case: a step of a derived class
class Steps:
    def train(self):
        for batch in loader:
            self.step(batch)
    def step(self, batch):
        raise NotImplementedError
    def test(self):
        self.model.eval()
        self.model.train()
class Own(Steps):
    def step(self, batch):
        self.loss(batch).backward()
# %%
own = Own()
# %%
own.train()
# %%
evaluate(model)
# answer: own.train()

# case: a constructor
class Fitter:
    def __init__(self, model, loader):
        self.model = model
    def __post_init__(self):
        for batch in self.loader:
            self.model(batch).backward()
# %%
Fitter(model, loader)
# %%
evaluate(model)
# answer: Fitter(model, loader)

# case: a call of an instance
class Fitter:
    def __init__(self, model, loader):
        self.model = model
    def __call__(self):
        for batch in self.loader:
            self.model(batch).backward()
# %%
fit = Fitter(model, loader)
# %%
fit()
# %%
evaluate(model)
# answer: fit()

# case: a tensor's backward() whose result gets a name
def fit():
    for batch in loader:
        _ = model(batch).backward(retain_graph=True)
# %%
fit()
# answer: fit()

# case: a backward() of single rows whose result gets a name
def fit():
    for x, y in loader:
        rows = nn.functional.cross_entropy(model(x), y, reduction="none")
        out = rows.backward(torch.ones_like(rows))
# %%
fit()
# answer: fit()

# case: a function that two others call
def step(b):
    model(b).backward()
def warm():
    step(0)
def epoch():
    for b in loader:
        step(b)
# %%
def main():
    epoch()
    epoch()
# %%
main()
# %%
evaluate(model)
# answer: main()

# case: a function that is passed
def closure():
    model(x).backward()
# %%
for i in range(3):
    optimizer.step(closure)
# %%
evaluate(model)
# answer: for i in range(3):
# answer:     optimizer.step(closure)

# case: a step that calls the closure again and again by itself
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=50)
def closure():
    loss = model(x).sum()
    loss.backward()
    return loss
# %%
optimizer.step(closure)
# %%
evaluate(model)
# answer: optimizer.step(closure)

# case: a step whose closure is a method of a module on its GPU
class Fitted(nn.Module):
    def closure(self):
        loss = self(x).sum()
        loss.backward()
        return loss
net = Fitted().to("cuda")
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=50)
# %%
optimizer.step(net.closure)
# %%
evaluate(net)
# answer: optimizer.step(net.closure)

# case: a method that is passed
class Fitter:
    def __init__(self, model, loader):
        self.model = model
    def fit(self):
        for batch in self.loader:
            self.model(batch).backward()
# %%
fitter = Fitter(model, loader)
# %%
study.optimize(fitter.fit)
# %%
evaluate(model)
# answer: study.optimize(fitter.fit)

# case: a generator
def losses():
    for b in loader:
        loss = model(b)
        loss.backward()
        yield loss
# %%
for loss in losses():
    print(loss)
# %%
evaluate(model)
# answer: for loss in losses():
# answer:     print(loss)

# case: a function under a test
def main():
    while True:
        model(x).backward()
# %%
if __name__ == "__main__":
    main()
# %%
evaluate(model)
# answer: if __name__ == "__main__":
# answer:     main()

# case: a loop around a call
def step(b):
    model(b).backward()
# %%
for epoch in range(3):
    for b in loader:
        step(b)
# %%
evaluate(model)
# answer: for epoch in range(3):
# answer:     for b in loader:
# answer:         step(b)

# case: a field of a dataclass, which is called later
from dataclasses import dataclass
def fit():
    for batch in loader:
        model(batch).backward()
@dataclass
class Job:
    name: str
    work: object
# %%
job = Job("a", work=fit)
other = Job("b", fit)
# %%
other.work()
# %%
evaluate(model)
# answer: other.work()

# case: a field of a tuple with names
from typing import NamedTuple
def fit():
    for batch in loader:
        model(batch).backward()
class Job(NamedTuple):
    work: object
# %%
job = Job(fit)
# %%
job.work()
# answer: job.work()

# case: a class of a library's, which calls what it is given
import threads
def fit():
    for batch in loader:
        model(batch).backward()
class Worker(threads.Worker):
    name: str = "a"
# %%
Worker(fit)
# %%
evaluate(model)
# answer: Worker(fit)

# case: a namedtuple, whose field is called later
from collections import namedtuple
def fit():
    for batch in loader:
        model(batch).backward()
Stage = namedtuple("Stage", "name, work")
stages = [Stage("first", print), Stage("second", fit)]
# %%
for stage in stages:
    stage.work()
# %%
evaluate(model)
# answer: for stage in stages:
# answer:     stage.work()

# case: a field of a dataclass that derives from another, and a variable of the class
from dataclasses import dataclass
from typing import ClassVar
def fit():
    for batch in loader:
        model(batch).backward()
@dataclass
class Named:
    made: ClassVar[int] = 0
    name: str
@dataclass
class Job(Named):
    work: object
job = Job("a", fit)
# %%
job.work()
# %%
evaluate(model)
# answer: job.work()

# case: a namespace, whose attribute is called later
from types import SimpleNamespace
def fit():
    for batch in loader:
        model(batch).backward()
job = SimpleNamespace(name="a", work=fit)
# %%
job.work()
# answer: job.work()

# case: a list of an object, which keeps functions with their arguments
def fit(epochs):
    for batch in loader:
        model(batch).backward()
class Queue:
    def __init__(self):
        self.jobs = []
    def add(self, function, *arguments):
        self.jobs.append((function, arguments))
    def work(self):
        for function, arguments in self.jobs:
            function(*arguments)
queue = Queue()
queue.add(fit, 2)
# %%
queue.work()
# %%
evaluate(model)
# answer: queue.work()
