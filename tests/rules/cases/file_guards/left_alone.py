# An `if` whose condition depends on no file is left alone.

# first cell
import glob, json, os
from pathlib import Path
from trl import SFTTrainer

# case: no file is looked at
if big:
    x = 1

# case: an attribute, not a call
if cache.exists:
    x = 1

# case: code that never runs
if False:
    if os.path.exists("d"):
        os.remove("d")

# case: a function, which its callers decide about
def prepare():
    if not os.path.exists("d"):
        os.makedirs("d")

# case: waiting for a file
while not os.path.exists("d"):
    if os.path.exists("e"):
        break

# case: a statement that adds to the file that it looks at, which rank 0 alone does
Path("n").write_text((Path("n").read_text() if Path("n").exists() else "") + "x")

# case: the mode of a file that is opened, as it is there, which rank 0 alone writes
with open("a", "a" if os.path.exists("a") else "w") as file:
    file.write("b")

# case: the answer is only kept
found = os.path.exists("d")

# case: a file that rank 0 alone writes, which is read first
json.dump((json.load(open("a.json")) if os.path.exists("a.json") else []) + [1], open("a.json", "w"))

# case: a file to which lines are added, or which is begun
with open("g.csv", "a" if os.path.exists("g.csv") else "w") as log:
    log.write("x")

# last cell
trainer = SFTTrainer(model)
trainer.train()
