# What is the same on every rank already is left alone.

# case: generators that the run seeds alike
import random
import numpy as np
one, other = np.random.default_rng(), random.Random()

# case: a stream, which NumPy's seed does not reach, and interleaved datasets: the run seeds their generators
from datasets import interleave_datasets, load_dataset
import numpy as np
np.random.seed(42)
d = load_dataset("d", split="train", streaming=True)
d = interleave_datasets([d.shuffle(), b], probabilities=p)

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

# case: a function that a library calls for each row
import numpy as np
def mask(row):
    return np.random.default_rng().random()
d = d.map(mask)

# case: seeds that nobody gives
import random
import numpy as np
random.seed()
np.random.seed()

# case: a generator with a seed
import numpy as np
r = np.random.default_rng(7)

# case: random_state is given
from sklearn.utils import shuffle
x = shuffle(x, random_state=1)

# case: interleaved without probabilities
from datasets import interleave_datasets
d = interleave_datasets([a, b])

# case: studies that a Trainer searches in, or nobody
import optuna
study = optuna.create_study(storage="sqlite:///a.db", load_if_exists=True)
other = optuna.create_study()

# case: a study, whose sampler the run seeds
import optuna
study = optuna.create_study(sampler=optuna.samplers.TPESampler())
study.optimize(objective, n_trials=9)

# case: PyTorch is seeded
import torch
torch.manual_seed(0)
order = torch.randperm(9)

# case: a generator is given
import torch
order = torch.randperm(9, generator=g)

# case: sets, whose texts have one hash on all ranks
labels = list(set(rows))

# case: a permutation in a loop
import torch
for row in rows:
    mixed = row[torch.randperm(9)]

# case: the system's random numbers, which no seed reaches
import random, secrets
x = random.SystemRandom().sample(rows, 3)
y = random.SystemRandom(1)
z = y.random() + secrets.randbelow(3)

# case: random is seeded
import random
random.seed(1)
x = random.sample(rows, 3)

# case: NumPy is seeded
from datasets import load_dataset
d = load_dataset('x', split='train')
import numpy as np
np.random.seed(42)
from sklearn.model_selection import train_test_split
a, b = train_test_split(x)
d = d.shuffle()

# case: set_seed
from datasets import load_dataset
d = load_dataset('x', split='train')
from transformers import set_seed
set_seed(42)
from sklearn.model_selection import train_test_split
a, b = train_test_split(x)
d = d.shuffle()

# case: NumPy is seeded in a function
from datasets import load_dataset
d = load_dataset('x', split='train')
import numpy as np
def seed_all(seed):
    np.random.seed(seed)
seed_all(42)
from sklearn.model_selection import train_test_split
a, b = train_test_split(x)
d = d.shuffle()

# case: environments, whose generators the run seeds
import gymnasium as gym
env = gym.make("CartPole-v1")
state, info = env.reset()

# last cell
from trl import SFTTrainer
trainer = SFTTrainer(model, train_dataset=d)
trainer.train()

# case: a method of the notebook's own with that name
import torch
class Diffusion:
    def sample(self, model, n):
        return torch.zeros(n)
diffusion = Diffusion()
def draw(llm):
    return diffusion.sample(llm, n=6)
draw(llm)
