# Which functions of the notebook a call runs.

# case: a name
def f(): pass
f()
# asked: f()
# answer: f

# case: one of two that a function returns
def make():
    def f(): pass
    def g(): pass
    return f, g
f, other = make()
f()
other()
# asked: other()
# answer: g

# case: a method of the second value that a function returns, beside another class's of this name
class Memory:
    def update(self, place, value): pass
class Agent:
    def update(self): pass
def make():
    agent = Agent()
    return 1, agent
rows, agent = make()
agent.update()
# asked: agent.update()
# answer: Agent.update

# case: passed to a method
def f(): pass
rows.map(f)
# asked: rows.map
# answer: f

# case: a class whose base makes it
class Job:
    def __init__(self, part=None):
        self.part = part
    def go(self):
        self.step()
        self.part.step()
    def step(self):
        pass
class Mine(Job):
    def step(self):
        super().step()
Mine()
# asked: Mine()
# answer: Job.__init__

# case: a method of a derived class
class Job:
    def __init__(self, part=None):
        self.part = part
    def go(self):
        self.step()
        self.part.step()
    def step(self):
        pass
class Mine(Job):
    def step(self):
        super().step()
job = Mine()
job.step()
# asked: job.step
# answer: Mine.step

# case: a method of what a function makes
class Job:
    def __init__(self, part=None):
        self.part = part
    def go(self):
        self.step()
        self.part.step()
    def step(self):
        pass
class Mine(Job):
    def step(self):
        super().step()
def make():
    return Mine()
job = make()
job.go()
# asked: job.go
# answer: Job.go

# case: a method of self
class Job:
    def __init__(self, part=None):
        self.part = part
    def go(self):
        self.step()
        self.part.step()
    def step(self):
        pass
class Mine(Job):
    def step(self):
        super().step()
# asked: self.step
# answer: Job.step
# answer: Mine.step

# case: super()
class Job:
    def __init__(self, part=None):
        self.part = part
    def go(self):
        self.step()
        self.part.step()
    def step(self):
        pass
class Mine(Job):
    def step(self):
        super().step()
# asked: super().step
# answer: Job.step

# case: a part that is given when it is made
class Job:
    def __init__(self, part=None):
        self.part = part
    def go(self):
        self.step()
        self.part.step()
    def step(self):
        pass
class Mine(Job):
    def step(self):
        super().step()
Job(Mine())
# asked: self.part.step
# answer: Mine.step

# case: a method that one class alone has
class Job:
    def __init__(self, part=None):
        self.part = part
    def go(self):
        self.step()
        self.part.step()
    def step(self):
        pass
class Mine(Job):
    def step(self):
        super().step()
x.go()
# asked: x.go
# answer: Job.go

# case: a function that a function returns
import functools
def make():
    def one(x):
        pass
    return one
def two(x):
    pass
step = make()
step(1)
# asked: step(1)
# answer: one

# case: such a function in an attribute
import functools
def make():
    def one(x):
        pass
    return one
def two(x):
    pass
self.part = make()
self.part(1)
# asked: self.part(1)
# answer: one

# case: a table of functions
import functools
def make():
    def one(x):
        pass
    return one
def two(x):
    pass
steps = {'a': make}
steps['a']()
# asked: steps['a']()
# answer: make

# case: partial in a variable
import functools
def make():
    def one(x):
        pass
    return one
def two(x):
    pass
step = functools.partial(make, 1)
step()
# asked: step()
# answer: make

# case: a list of partials
import functools
def make():
    def one(x):
        pass
    return one
def two(x):
    pass
jobs = [functools.partial(two, 1)]
for job in jobs:
    job()
# asked: job()
# answer: two

# case: a list that is counted through
import functools
def make():
    def one(x):
        pass
    return one
def two(x):
    pass
for n, job in enumerate([two, make]):
    job(1)
# asked: job(1)
# answer: make
# answer: two

# case: a list that grows
import functools
def make():
    def one(x):
        pass
    return one
def two(x):
    pass
jobs = []
jobs.append(('a', two))
for n, job in jobs:
    job(1)
# asked: job(1)
# answer: two

# case: a dict that grows
import functools
def make():
    def one(x):
        pass
    return one
def two(x):
    pass
jobs = {}
jobs[n] = two
for n, job in jobs.items():
    job(1)
# asked: job(1)
# answer: two

# case: a list made in a comprehension
import functools
def make():
    def one(x):
        pass
    return one
def two(x):
    pass
jobs = [two for n in x]
jobs.pop()(1)
# asked: jobs.pop()(1)
# answer: two

# case: partial that is passed
import functools
def make():
    def one(x):
        pass
    return one
def two(x):
    pass
rows.map(functools.partial(two, 1))
# asked: rows.map
# answer: two

# case: a generator in a loop
def steps(model):
    yield model()
class Run:
    def steps(self):
        yield 1
def make():
    return steps(2)
for x in steps(1):
    pass
# asked: steps(1)
# answer: steps

# case: a generator that is kept
def steps(model):
    yield model()
class Run:
    def steps(self):
        yield 1
def make():
    return steps(2)
run = steps(1)
next(run)
# asked: next(run)
# answer: steps

# case: a generator that is sent values
def steps(model):
    yield model()
class Run:
    def steps(self):
        yield 1
run = steps(1)
run.send(None)
# asked: run.send(None)
# answer: steps

# case: a generator in an attribute
def steps(model):
    yield model()
class Run:
    def steps(self):
        yield 1
def make():
    return steps(2)
self.run = make()
list(self.run)
# asked: list(self.run)
# answer: steps

# case: a generator method
def steps(model):
    yield model()
class Run:
    def steps(self):
        yield 1
def make():
    return steps(2)
run = Run()
later = run.steps()
next(later)
# asked: next(later)
# answer: Run.steps

# case: a list of generators
def steps(model):
    yield model()
class Run:
    def steps(self):
        yield 1
def make():
    return steps(2)
for run in [steps(1)]:
    next(run)
# asked: next(run)
# answer: steps

# case: one of two functions
import functools
def make():
    def one(x):
        pass
    return one
def two(x):
    pass
if x:
    step = make()
else:
    step = two
step(1)
# asked: step(1)
# answer: one
# answer: two

# case: a parameter that hides a function
import functools
def make():
    def one(x):
        pass
    return one
def two(x):
    pass
def run(two):
    two(1)
run(make)
# asked: two(1)
# answer: make

# case: a method that is set later
class Job:
    def __init__(self, part=None):
        self.part = part
    def go(self):
        self.step()
        self.part.step()
    def step(self):
        pass
def f(self): pass
setattr(Job, 'add', f)
Job().add()
# asked: Job().add()
# answer: f

# case: two classes have one
class Job:
    def __init__(self, part=None):
        self.part = part
    def go(self):
        self.step()
        self.part.step()
    def step(self):
        pass
class More:
    def go(self): pass
x.go()
# asked: x.go
# answer: nothing

# case: a module
class Job:
    def __init__(self, part=None):
        self.part = part
    def go(self):
        self.step()
        self.part.step()
    def step(self):
        pass
import lib
lib.go()
# asked: lib.go
# answer: nothing

# case: a model
class Job:
    def __init__(self, part=None):
        self.part = part
    def go(self):
        self.step()
        self.part.step()
    def step(self):
        pass
from unsloth import FastLanguageModel as F
model, tokenizer = F.from_pretrained('m')
model.go()
# asked: model.go
# answer: nothing

# case: an object of a library
class Job:
    def __init__(self, part=None):
        self.part = part
    def go(self):
        self.step()
        self.part.step()
    def step(self):
        pass
from lib import Thing
thing = Thing()
thing.go()
# asked: thing.go
# answer: nothing

# case: train(), which any model has
class Net:
    def train(self): pass
x.train()
# asked: x.train
# answer: nothing

# case: a function that is loaded
f = load()
f()
# asked: f()
# answer: nothing

# case: partial, whose result does
import functools
def make():
    def one(x):
        pass
    return one
def two(x):
    pass
step = functools.partial(two, 1)
# asked: functools.partial
# answer: nothing

# case: a generator that nothing goes through
def steps(model):
    yield model()
class Run:
    def steps(self):
        yield 1
def make():
    return steps(2)
run = steps(1)
# asked: steps(1)
# answer: nothing

# case: another call in the loop
def steps(model):
    yield model()
class Run:
    def steps(self):
        yield 1
def make():
    return steps(2)
for x in steps(1):
    print(x)
# asked: print(x)
# answer: nothing

# case: what a list of a generator gives
def steps(model):
    yield model()
class Run:
    def steps(self):
        yield 1
def make():
    return steps(2)
values = list(steps(1))
sum(values)
# asked: sum(values)
# answer: nothing

# case: a function that a class keeps
def f(): pass
class Log:
    def __init__(self, made_by):
        self.made_by = made_by
log = Log(f)
# asked: Log(
# answer: Log.__init__

# case: a function that a function of the notebook passes on
def f(): pass
def each(rows, change):
    return rows.map(change)
each(rows, f)
# asked: rows.map
# answer: f

# case: an object that a module's function trains
import agents
class Base:
    def act(self, state):
        return self.step(state)
class Agent(Base):
    def __init__(self):
        self.steps = 0
    def update(self, rows):
        self.steps += 1
agents.train(Agent(), rows)
# asked: agents.train
# answer: Agent.update
# answer: Base.act

# case: an object that a module's function shows
import agents
class Agent:
    def update(self, rows):
        self.steps += 1
agents.show(Agent())
# asked: agents.show
# answer: nothing

# case: an object that a module's function splits
from sklearn.model_selection import train_test_split
class Rows:
    def dump(self, path): pass
train_test_split(Rows())
# asked: train_test_split
# answer: nothing

# case: a function that a decorator puts into a class, beside one of the same name
class Agent:
    def fit(self, rows):
        raise NotImplementedError
@add_to_class(Agent)
def fit(self, rows):
    self.learn(rows)
def learn(rows): pass
Agent().fit(rows)
# asked: Agent().fit
# answer: Agent.fit
# answer: fit

# case: a method out of sight, beside a function that is none
@functools.cache
def learn(rows): pass
agent.learn(rows)
# asked: agent.learn
# answer: nothing
