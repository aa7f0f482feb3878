# Whether all ranks come to `work()`.

# first cell
import os, time
import numpy as np
from lib import Base
start = time.time()

# case: a cell
work()
# asked: work(
# answer: True

# case: a function
def f():
    work()
f()
# asked: work(
# answer: True

# case: a method of a plain class
class Plain:
    def f(self):
        work()
Plain().f()
# asked: work(
# answer: True

# case: a function that is passed on
def f():
    work()
f()
rows.map(f)
# asked: work(
# answer: False

# case: a method of a library's class
class Mine(Base):
    def f(self):
        work()
Mine().f()
# asked: work(
# answer: False

# case: a decorated function
@hook
def f():
    work()
f()
# asked: work(
# answer: False

# case: an except
try:
    load()
except OSError:
    work()
# asked: work(
# answer: False

# case: an except that trains
def train():
    work()
    for batch in batches:
        net(batch).backward()
try:
    load()
except OSError:
    train()
# asked: work(
# answer: True

# case: a loop that waits
while time.time() - start > 60:
    work()
# asked: work(
# answer: False

# case: a loop that waits for an error
while True:
    work()
    if time.time() - start > 60:
        raise TimeoutError
# asked: work(
# answer: False

# case: a loop that trains
while time.time() - start > 60:
    work()
    loss.backward()
# asked: work(
# answer: True

# case: an event of a callback
from transformers import TrainerCallback
class Mine(TrainerCallback):
    def on_step_end(self, args, state, control, **options):
        work()
# asked: work(
# answer: True

# case: an event of a micro-batch, of which ranks have different numbers
from transformers import TrainerCallback
class Mine(TrainerCallback):
    def on_substep_end(self, args, state, control, **options):
        work()
for event in events:
    getattr(mine, event)()
# asked: work(
# answer: False
