# A folder that may exist is made by rank 0 alone below a look at files: all ranks look before it is made.

# first cell
import glob, os
from pathlib import Path
from trl import SFTTrainer

# case: a free number, in a function
def increment_path(path):
    path, n = Path(path), 2
    while Path(f"{path}{n}").exists():
        n += 1
    path = Path(f"{path}{n}")
    path.mkdir(parents=True, exist_ok=True)
    return path
out = increment_path("runs/exp")
# output
def increment_path(path):
    path, n = Path(path), 2
    while Path(f"{path}{n}").exists():
        n += 1
    path = Path(f"{path}{n}")
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            path.mkdir(parents=True, exist_ok=True)
    return path
out = increment_path("runs/exp")

# case: a free number, in a cell
n = 0
while os.path.exists(f"runs/exp{n}"):
    n += 1
os.makedirs(f"runs/exp{n}", exist_ok=True)
# output
n = 0
while os.path.exists(f"runs/exp{n}"):
    n += 1
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        os.makedirs(f"runs/exp{n}", exist_ok=True)

# case: whether it is new
def fresh(folder):
    new = not os.path.exists(folder)
    os.makedirs(folder, exist_ok=True)
    return new
first = fresh("out")
# output
def fresh(folder):
    new = not os.path.exists(folder)
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            os.makedirs(folder, exist_ok=True)
    return new
first = fresh("out")

# case: a count
run = len(glob.glob("models/*")); os.makedirs(f"models/{run}", exist_ok=True)
# output
run = len(glob.glob("models/*"))
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        os.makedirs(f"models/{run}", exist_ok=True)

# case: a count of what a folder holds
run = len([entry for entry in os.scandir("models")])
Path("models", str(run)).mkdir(exist_ok=True)
# output
run = len([entry for entry in os.scandir("models")])
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        Path("models", str(run)).mkdir(exist_ok=True)

# case: a name that a function looks for, for a method
def free(root):
    return next(f"{root}/{n}" for n in range(99) if not os.path.isdir(f"{root}/{n}"))
class Log:
    def __init__(self, root):
        folder = free(root)
        os.makedirs(folder, exist_ok=True)
log = Log("logs")
# output
def free(root):
    return next(f"{root}/{n}" for n in range(99) if not os.path.isdir(f"{root}/{n}"))
class Log:
    def __init__(self, root):
        folder = free(root)
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
            if is_main:
                os.makedirs(folder, exist_ok=True)
log = Log("logs")

# case: a count where the folder is made
os.makedirs(f"models/{len(os.listdir('models'))}", exist_ok=True)
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        os.makedirs(f"models/{len(os.listdir('models'))}", exist_ok=True)

# case: a look at the folder around
for name in sorted(Path("out").iterdir()):
    os.makedirs(f"out/{name}/a", exist_ok=True)
# output
for name in sorted(Path("out").iterdir()):
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            os.makedirs(f"out/{name}/a", exist_ok=True)

# case: in a function that saves as well
def prepare(row):
    folder = f"out/{len(os.listdir('out'))}"
    os.makedirs(folder, exist_ok=True)
    row["image"].save_as(f"{folder}/a.png")
prepare(rows[0])
# output
def prepare(row):
    folder = f"out/{len(os.listdir('out'))}"
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            os.makedirs(folder, exist_ok=True)
    row["image"].save_as(f"{folder}/a.png")
prepare(rows[0])

# case: no look at files above
def make(folder):
    os.makedirs(folder, exist_ok=True)
make("a")
os.makedirs("out", exist_ok=True)
found = os.listdir("out")

# case: a look at another place
data = "data.csv"
found = os.path.exists(data)
os.makedirs("out", exist_ok=True)
# output
data = "data.csv"
found = os.path.exists(data)
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        os.makedirs("out", exist_ok=True)

# case: a look at places whose beginning is known
for name in os.listdir("raw"):
    os.makedirs(f"out/{name}", exist_ok=True)
    os.makedirs(os.path.join("mask", name), exist_ok=True)
# output
for name in os.listdir("raw"):
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            os.makedirs(f"out/{name}", exist_ok=True)
            os.makedirs(os.path.join("mask", name), exist_ok=True)

# case: a look in a function that is not this one
def found(folder):
    return os.path.exists(folder)
os.makedirs("out", exist_ok=True)
# output
def found(folder):
    return os.path.exists(folder)
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        os.makedirs("out", exist_ok=True)

# case: a test for this folder alone
def make(folder):
    if not os.path.exists(folder):
        os.makedirs(folder, exist_ok=True)
make("a")
# output
def make(folder):
    if not os.path.exists(folder):
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
            if is_main:
                os.makedirs(folder, exist_ok=True)
make("a")

# case: a function that one rank may run alone
def save(folder):
    new = not os.path.exists(folder)
    os.makedirs(folder, exist_ok=True)
    return new
register(save)

# case: folders whose names are needed below
new = not os.path.exists("out/a")
for folder in folders: os.makedirs(folder, exist_ok=True)
print(folder)

# case: on the way out
def make(folder):
    new = not os.path.exists(folder)
    if new: os.makedirs(folder, exist_ok=True); return new
print(make("out"))
# output
def make(folder):
    new = not os.path.exists(folder)
    if new:
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
            if is_main:
                os.makedirs(folder, exist_ok=True)
        return new
print(make("out"))

# last cell
trainer = SFTTrainer(model)
trainer.train()
