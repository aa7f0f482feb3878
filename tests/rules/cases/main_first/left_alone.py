# What fills no cache of Datasets is left alone.

# first cell
from datasets import Dataset, load_dataset
from trl import SFTTrainer

# case: no dataset
x = 1

# case: the map of something else
df.map(f)
list(map(f, x))

# case: a dataset in memory
data = Dataset.from_dict({"a": [1]})

# case: reading a sample
data = rows()
x = data[0]["text"]
print(x)

# case: code that never runs
if False:
    data = load_dataset("d")

# case: a function that is only defined
def prepare():
    return load_dataset("d").map(f)

# case: preparation inside the trainer
d = SFTTrainer(llm, train_dataset=load_dataset("d"))

# case: a reader of files, which loads no data of its own
from llama_index.core import SimpleDirectoryReader
docs = SimpleDirectoryReader("data").load_data()

# last cell
t = SFTTrainer(llm)
t.train()

# case: a path and an empty object whose names say data
from pathlib import Path
from torch_geometric.data import HeteroData
dataset_dir = Path("rows")
data = HeteroData()
trainer = SFTTrainer(model, train_dataset=data)
trainer.train()
