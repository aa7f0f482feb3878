# What a library trains is no preparation: a rank that finds no file would train it once more, after rank 0.

# first cell
import joblib, os
from pathlib import Path
from lightgbm import LGBMRegressor
from forest import Trainer
from trl import SFTTrainer
kept = Path("kept")

# last cell
SFTTrainer(llm).train()

# case: what it writes is not what is looked for
for name in names:
    if (kept / name).exists():
        trees = joblib.load(kept / name)
    else:
        trees = Trainer(name)
        trees.fit(rows, labels)
# output
for name in names:
    if ddp.from_main_process(lambda: (kept / name).exists()):
        trees = joblib.load(kept / name)
    else:
        trees = Trainer(name)
        trees.fit(rows, labels)

# case: what it writes is looked for
if os.path.exists("trees.txt"):
    trees = joblib.load("trees.txt")
else:
    trees = LGBMRegressor().fit(rows, labels)
    joblib.dump(trees, "trees.txt")
# output
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    if os.path.exists("trees.txt"):
        trees = joblib.load("trees.txt")
    else:
        trees = LGBMRegressor().fit(rows, labels)
        joblib.dump(trees, "trees.txt")

# case: a function writes what is looked for
def grow():
    trees = LGBMRegressor().fit(rows, labels)
    joblib.dump(trees, kept / "trees.txt")
    return trees
trees = joblib.load(kept / "trees.txt") if (kept / "trees.txt").exists() else grow()
# output
def grow():
    trees = LGBMRegressor().fit(rows, labels)
    joblib.dump(trees, kept / "trees.txt")
    return trees
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    trees = joblib.load(kept / "trees.txt") if (kept / "trees.txt").exists() else grow()

# case: a switch that trains anyhow
again = True
if os.path.exists("trees.txt") and not again:
    trees = joblib.load("trees.txt")
else:
    trees = LGBMRegressor().fit(rows, labels)

# case: another expression of the same file, and a method that names it
forest = kept / "trees.txt"
class Grower:
    name = "forest"
    def path(self):
        return kept / f"{self.name}.txt"
    def grow(self, folder):
        trees = LGBMRegressor().fit(rows, labels)
        joblib.dump(trees, folder / "trees.txt")
        joblib.dump(trees, self.path())
        return trees
grower = Grower()
trees = joblib.load(forest) if forest.exists() else grower.grow(kept)
if not grower.path().exists():
    grower.grow(kept)
# output
forest = kept / "trees.txt"
class Grower:
    name = "forest"
    def path(self):
        return kept / f"{self.name}.txt"
    def grow(self, folder):
        trees = LGBMRegressor().fit(rows, labels)
        joblib.dump(trees, folder / "trees.txt")
        joblib.dump(trees, self.path())
        return trees
grower = Grower()
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    trees = joblib.load(forest) if forest.exists() else grower.grow(kept)
    if not grower.path().exists():
        grower.grow(kept)
