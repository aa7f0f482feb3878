# Data is prepared on rank 0 first only before training.

# first cell
from datasets import Dataset, load_dataset
from trl import SFTTrainer

# case: after training, where only rank 0 runs
t = SFTTrainer(llm)
t.train()
data = load_dataset("test").map(f)

# case: a notebook that does not train
data = load_dataset("d")
