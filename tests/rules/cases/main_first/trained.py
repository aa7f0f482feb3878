# What a library trains is no preparation: the ranks train side by side, not one after another.

# first cell
from datasets import load_dataset
from lightgbm import LGBMRegressor
from trl import SFTTrainer

# last cell
SFTTrainer(llm, train_dataset=rows).train()

# case: a function that loads, and trains then
def grow():
    rows = load_dataset("d", split="train")
    trees = LGBMRegressor()
    trees.fit(rows["x"], rows["y"])
    return rows, trees
rows, trees = grow()
# output
def grow():
    with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
        rows = load_dataset("d", split="train")
    trees = LGBMRegressor()
    trees.fit(rows["x"], rows["y"])
    return rows, trees
rows, trees = grow()
