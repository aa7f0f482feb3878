# What a function writes and reads again, where one rank alone may call it, is there for each rank.

# first cell
import json, os, shutil
import numpy as np
import torch
from trl import SFTTrainer

# case: a cache of rows, whose files appear whole
class Rows(torch.utils.data.Dataset):
    def __getitem__(self, i):
        path = f"{i}.npy"
        if not os.path.isfile(path):
            np.save(path, make(i))
        torch.save(i, "last.pt")
        return np.load(path)
# output
class Rows(torch.utils.data.Dataset):
    def __getitem__(self, i):
        path = f"{i}.npy"
        if not os.path.isfile(path):
            np.save(path, make(i))
        if ddp.is_main_process:  # nb2ddp: only rank 0 writes
            torch.save(i, "last.pt")
        return np.load(path)

# case: a cache of tables
class Rows(torch.utils.data.Dataset):
    def __getitem__(self, i):
        path = f"{i}.csv"
        if not os.path.isfile(path):
            make(i).to_csv(path)
        return pd.read_csv(path)
# note, line 5: every rank writes this file, because it reads it again at once, and may find another rank's half: write to a name of its own first, then os.replace()

# case: a copy, of which the source is read again
def collate(rows):
    shutil.copy(rows[0], "first")
    return load(rows[0])
# output
def collate(rows):
    if ddp.is_main_process:  # nb2ddp: only rank 0 writes
        shutil.copy(rows[0], "first")
    return load(rows[0])

# case: a picture whose path goes on to what reads it
def collate(rows):
    path = f"{rows[0]['id']}.png"
    rows[0]["image"].save(path)
    print("saved", path)
    return processor([{"type": "image", "url": path}])
# note, line 3: every rank writes this file, because it reads it again at once, and may find another rank's half: ...

# case: a method saves what another method of the class loads
class Graphs(InMemoryDataset):
    def __init__(self, root):
        super().__init__(root)
        self.data = torch.load(self.processed_paths[0])
    def process(self):
        torch.save(make(), self.processed_paths[0])
        torch.save(make(), self.other)
# output
class Graphs(InMemoryDataset):
    def __init__(self, root):
        super().__init__(root)
        self.data = torch.load(self.processed_paths[0])
    def process(self):
        torch.save(make(), self.processed_paths[0])
        if ddp.is_main_process:  # nb2ddp: only rank 0 writes
            torch.save(make(), self.other)

# last cell
t = SFTTrainer(llm, train_dataset=Rows())
t.train()
