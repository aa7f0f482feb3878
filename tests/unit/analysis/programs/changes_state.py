# Whether the `with` of a notebook changes what code outside it sees.

# first cell
import os, time
import numpy as np
from lib import Base
start = time.time()

# case: a list that grows
rows = []
with open(p) as f:
    rows.append(f.read())
# answer: True

# case: a function that adds to a list
rows = []
def add():
    rows.append(1)
with open(p) as f:
    add()
# answer: True

# case: a generator of the notebook's own
rng = np.random.default_rng(0)
with open(p) as f:
    x = rng.normal()
# answer: True

# case: a function with a list of its own
rows = []
def f():
    rows = []
    rows.append(1)
with open(p) as g:
    f()
# answer: False

# case: a global count
n = 0
def f():
    global n
    n += 1
with open(p) as g:
    f()
# answer: True

# case: a file alone
with open(p, 'w') as f:
    f.write(x)
# answer: False
