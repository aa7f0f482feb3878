# Rank 0 prepares the data first; the other ranks read its cache.

# first cell
from datasets import Dataset, load_dataset
from trl import SFTTrainer

# case: loaded
data = load_dataset("d", split = "train")  # all
# output
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    data = load_dataset("d", split = "train")  # all

# case: loaded from a folder, and mapped
rows = Dataset.load_from_disk("rows")
data = rows.map(to_text)
# output
rows = Dataset.load_from_disk("rows")
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    data = rows.map(to_text)

# case: loaded and mapped in one
data = load_dataset("d").shuffle(seed=1).map(f)["train"]
# output
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    data = load_dataset("d").shuffle(seed=1).map(f)["train"]

# case: in a function
def prepare():
    return load_dataset("d")
data = prepare()
# output
def prepare():
    return load_dataset("d")
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    data = prepare()

# case: in a loop
for name in ["a", "b"]:
    data = load_dataset(name)
# output
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    for name in ["a", "b"]:
        data = load_dataset(name)

# case: in a with block
with timer:
    data = load_dataset("d")
# output
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    with timer:
        data = load_dataset("d")

# case: several on a line
a = load_dataset("a"); b = load_dataset("b")
# output
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    a = load_dataset("a"); b = load_dataset("b")

# case: in a dict
data = {name: load_dataset(name) for name in "ab"}
# output
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    data = {name: load_dataset(name) for name in "ab"}

# case: neighbours share a block, comments stay
# the data
data = load_dataset("d")
# short ones
data = data.filter(short)  # < 10

def f(row):
    return row

data = data.map(f, batched = True,)
# output
# the data
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    data = load_dataset("d")
    # short ones
    data = data.filter(short)  # < 10

def f(row):
    return row

with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    data = data.map(f, batched = True,)

# case: texts of several lines and other indents
if big:
  data = load_dataset("""
one
  two""")
else:
  data = small()
# output
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    if big:
      data = load_dataset("""
one
  two""")
    else:
      data = small()

# last cell
t = SFTTrainer(llm)
t.train()
