# Global generators are seeded at the head of the script, unless the notebook does it.

# first cell
from datasets import load_dataset
d = load_dataset('x', split='train')

# case: random
import random
random.shuffle(d)
# note, line 2: this draws random numbers without a seed; the script sets one, because all ranks must draw the same
# head: seed=3407

# case: the system's random numbers
import random
order = random.SystemRandom()
order.shuffle(rows)
# note, line 3: no seed reaches a SystemRandom, so that each rank shuffles in another order; shuffle with random.Random(3407)

# case: NumPy
import numpy as np
x = np.random.randn(3)
# note, line 2: this draws random numbers without ...
# head: seed=3407

# case: random, seeded by the notebook
import random
random.seed(3)
random.shuffle(d)

# case: random, seeded by set_seed
from transformers import set_seed
import random
set_seed(1)
random.shuffle(d)

# case: a generator with a seed of its own
import numpy as np
g = np.random.default_rng(0)

# case: NumPy, where only `random` is seeded
import random
import numpy as np
random.seed(42)
order = np.random.permutation(9)
# note, line 4: this draws random numbers without ...
# head: seed=3407

# last cell
from trl import SFTTrainer
trainer = SFTTrainer(model, train_dataset=d)
trainer.train()
