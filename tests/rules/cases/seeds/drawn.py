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

# case: resample of scikit-learn
from sklearn.utils import resample
x = resample(x, n_samples=5)
# output
from sklearn.utils import resample
x = resample(x, n_samples=5, random_state=3407)

# case: shuffle of scikit-learn
import sklearn.utils
x = sklearn.utils.shuffle(x)
# output
import sklearn.utils
x = sklearn.utils.shuffle(x, random_state=3407)

# case: interleaved datasets
from datasets import interleave_datasets
d = interleave_datasets([a, b], probabilities=p)
# output
from datasets import interleave_datasets
d = interleave_datasets([a, b], probabilities=p, seed=3407)

# case: samples in a comprehension
import pandas as pd
x = pd.concat([g.sample(10) for g in groups])
# output
import pandas as pd
x = pd.concat([g.sample(10, random_state=3407) for g in groups])

# case: a permutation of PyTorch
import torch
order = torch.randperm(9)
# output
import torch
order = torch.randperm(9, generator=torch.Generator().manual_seed(3407))

# case: random_split before the seed is set
import torch
a, b = torch.utils.data.random_split(d, [9, 1])
torch.manual_seed(0)
# output
import torch
a, b = torch.utils.data.random_split(d, [9, 1], generator=torch.Generator().manual_seed(3407))
torch.manual_seed(0)

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

# case: train_test_split of scikit-learn and sample of pandas
from sklearn.model_selection import train_test_split
a, b = train_test_split(x)
c = frame.sample(frac=1)
d = 0
# output
from sklearn.model_selection import train_test_split
a, b = train_test_split(x, random_state=3407)
c = frame.sample(frac=1, random_state=3407)
d = 0

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

# case: a dataset, which the seed of `random` does not reach
from datasets import load_dataset
d = load_dataset('x', split='train')
import random
random.seed(1)
d = d.shuffle()
# output
from datasets import load_dataset
d = load_dataset('x', split='train')
import random
random.seed(1)
d = d.shuffle(seed=3407)

# last cell
from trl import SFTTrainer
trainer = SFTTrainer(model, train_dataset=d)
trainer.train()
