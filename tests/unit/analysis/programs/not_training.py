# What only could train: no statement does.

# first cell
import torch
from torch import nn
class Net(nn.Module):
    pass
model = Net()

# case: a class alone
class Fitter:
    def __init__(self, model, loader):
        self.model = model
    def fit(self):
        for batch in self.loader:
            self.model(batch).backward()
# answer: none

# case: an instance alone
class Fitter:
    def __init__(self, model, loader):
        self.model = model
    def fit(self):
        for batch in self.loader:
            self.model(batch).backward()
# %%
fitter = Fitter(model, loader)
# answer: none

# case: a model's train()
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
model.train()
# answer: none

# case: a library's method of that name
class Fitter:
    def __init__(self, model, loader):
        self.model = model
    def fit(self):
        for batch in self.loader:
            self.model(batch).backward()
# %%
from sklearn.svm import SVC
svc = SVC()
svc.fit()
# answer: none

# case: a method that only switches the model's mode
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
own.test()
# answer: none

# case: one backward() outside of loops
def step(b):
    model(b).backward()
# %%
step(x)
# answer: none

# case: functions that call one another
def a():
    b()
    x.backward()
def b():
    a()
# %%
a()
# answer: none
