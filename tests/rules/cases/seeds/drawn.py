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

# last cell
from trl import SFTTrainer
trainer = SFTTrainer(model, train_dataset=d)
trainer.train()
