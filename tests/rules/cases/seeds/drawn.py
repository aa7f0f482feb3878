# What each process would draw for itself is drawn with one seed, or broadcast.

# case: a generator of NumPy
import numpy as np
r = np.random.default_rng()
# output
import numpy as np
r = np.random.default_rng(3407)

# case: a generator of Python
import random
r = random.Random()
# output
import random
r = random.Random(3407)

# case: interleaved datasets
from datasets import interleave_datasets
d = interleave_datasets([a, b], probabilities=p)
# output
from datasets import interleave_datasets
d = interleave_datasets([a, b], probabilities=p, seed=3407)

# case: a list of a set
labels = list(set(rows))
# output
labels = list(ddp.same_order(set(rows)))

# case: a tuple of a set
texts = tuple({t for t in rows})
# output
texts = tuple(ddp.same_order({t for t in rows}))

# case: the order of a set in a loop
ids = {l: i for i, l in enumerate(set(rows))}
for i, l in enumerate(set(rows)):
    print(i)
# output
ids = {l: i for i, l in enumerate(ddp.same_order(set(rows)))}
for i, l in enumerate(ddp.same_order(set(rows))):
    print(i)

# case: a set with a name
labels = set(rows)
ids = {l: i for i, l in enumerate(labels)}
names = [n for n in list(labels)]
few = list({'a', 'b'})
# output
labels = set(rows)
ids = {l: i for i, l in enumerate(ddp.same_order(labels))}
names = [n for n in list(ddp.same_order(labels))]
few = list(ddp.same_order({'a', 'b'}))

# case: a stream, which NumPy's seed does not reach
from datasets import load_dataset
import numpy as np
np.random.seed(42)
d = load_dataset("d", split="train", streaming=True)
d = d.shuffle()
# output
from datasets import load_dataset
import numpy as np
np.random.seed(42)
d = load_dataset("d", split="train", streaming=True)
d = d.shuffle(seed=3407)

# case: generators in functions and objects, which draw anew each time
import numpy as np
import torch
class Noise:
    def __init__(self):
        self.rng = np.random.default_rng()
class Rows(torch.utils.data.Dataset):
    def __init__(self, n):
        self.rows = np.random.RandomState().rand(n)
def pick(rows):
    return np.random.default_rng().choice(rows)
noise, data = Noise(), Rows(9)
for part in parts:
    row = pick(part)
    more = np.random.default_rng().choice(part)
# output
import numpy as np
import torch
class Noise:
    def __init__(self):
        self.rng = np.random.default_rng(ddp.from_main_process(lambda: int.from_bytes(os.urandom(4), "little")))
class Rows(torch.utils.data.Dataset):
    def __init__(self, n):
        self.rows = np.random.RandomState(ddp.from_main_process(lambda: int.from_bytes(os.urandom(4), "little"))).rand(n)
def pick(rows):
    return np.random.default_rng(ddp.from_main_process(lambda: int.from_bytes(os.urandom(4), "little"))).choice(rows)
noise, data = Noise(), Rows(9)
for part in parts:
    row = pick(part)
    more = np.random.default_rng(ddp.from_main_process(lambda: int.from_bytes(os.urandom(4), "little"))).choice(part)

# case: a function that a library calls for each row
import numpy as np
def mask(row):
    return np.random.default_rng().random()
d = d.map(mask)
# note, line 3: no seed reaches this generator, so that each rank draws other numbers...

# last cell
from trl import SFTTrainer
trainer = SFTTrainer(model, train_dataset=d)
trainer.train()
