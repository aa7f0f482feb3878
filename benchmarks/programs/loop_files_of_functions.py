# crash: FileExistsError, FileNotFoundError; silent: lines written twice, rows that one rank alone has
# functions and methods that make, move and remove files before training, and a cache of rows

# %%
import json, os, random, shutil
from pathlib import Path
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)

# %%
def increment(base="runs"):
    os.makedirs(base, exist_ok=True)
    number = 0
    while True:
        folder = Path(base) / f"exp{number}"
        if not folder.exists():
            folder.mkdir()
            return folder
        number += 1

class Experiment:
    def __init__(self):
        self.folder = increment()
        self.lines = []
        os.makedirs(f"{self.folder}/weights")
    def log(self, line):
        print(line)
        with open(self.folder / "log.txt", "a") as file:
            file.write(line + "\n")
            self.lines.append(line)

def move(source, target):
    shutil.move(source, target)
    return target

experiment = Experiment()
experiment.log("start")
(experiment.folder / "notes.txt").write_text("draft")
notes = move(experiment.folder / "notes.txt", experiment.folder / "final.txt")
(experiment.folder / "empty").touch()
(experiment.folder / "empty").unlink()
print(Path(notes).read_text(), len(experiment.lines))

# %%
rows = []
with open("rows.jsonl", "w") as file:
    for number in range(26):
        row = np.random.randn(4).round(3).tolist()
        file.write(json.dumps(row) + "\n")
        rows.append(row)

class Cached(Dataset):
    def __len__(self):
        return len(rows)
    def __getitem__(self, index):
        path = experiment.folder / f"{index}.npy"
        if not path.exists():
            np.save(path, np.array(rows[index], dtype="float32"))
        row = torch.from_numpy(np.load(path))
        return row, row.sum()[None]

# %%
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(2):
    for x, y in DataLoader(Cached(), batch_size=8, shuffle=True):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    experiment.log(f"epoch {epoch} loss {loss.item():.4f}")
    torch.save(model.state_dict(), f"{experiment.folder}/weights/{epoch}.pt")
print(sorted(os.listdir("runs")), (experiment.folder / "log.txt").read_text())
