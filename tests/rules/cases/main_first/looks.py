# What a preparation finds among files is rank 0's on all ranks: it has made some when the others look.

# first cell
import glob, os
from pathlib import Path
from datasets import load_dataset
from trl import SFTTrainer

# last cell
SFTTrainer(llm, train_dataset=rows).train()

# case: a number, and whether it is the first time
def prepare(folder):
    rows = load_dataset("d", split="train")
    number = len(os.listdir(folder))
    first = not Path("done").exists()
    if first:
        Path("done").touch()
    rows.to_json(f"{folder}/{number}.json")
    return rows, number, first
rows, number, first = prepare("made")
# output
def prepare(folder):
    rows = load_dataset("d", split="train")
    number = len(ddp.from_main_process(lambda: os.listdir(folder)))
    first = not ddp.from_main_process(lambda: Path("done").exists())
    if first:
        Path("done").touch()
    rows.to_json(f"{folder}/{number}.json")
    return rows, number, first
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    rows, number, first = prepare("made")

# case: what is only asked for, the others find
def prepare(folder):
    is_there = os.path.exists(folder)
    if not is_there:
        rows = load_dataset("d", split="train")
        rows.save_to_disk(folder)
    return load_dataset("kept")
rows = prepare("made")
# output
def prepare(folder):
    is_there = os.path.exists(folder)
    if not is_there:
        rows = load_dataset("d", split="train")
        rows.save_to_disk(folder)
    return load_dataset("kept")
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    rows = prepare("made")

# case: nothing is written
def prepare(folder):
    names = glob.glob(f"{folder}/*.json")
    return load_dataset("json", data_files=names)
rows = prepare("made")
# output
def prepare(folder):
    names = glob.glob(f"{folder}/*.json")
    return load_dataset("json", data_files=names)
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    rows = prepare("made")

# case: comprehensions
def prepare(names):
    missing = [n for n in sorted(os.listdir("made")) if not os.path.exists(n)]
    for n in missing:
        Path(n).write_text("1")
    share = sum(os.path.exists(n) or os.path.exists(n + ".x") for n in missing) / len(missing)
    rows = load_dataset("d", split="train")
    rows.save_to_disk("kept")
    if True in missing:
        return rows, share, {n: len(os.listdir(n)) for n in names}
    return rows, len(glob.glob("*.x"))
rows, sizes = prepare(["a", "b"])
# output
def prepare(names):
    missing = ddp.from_main_process(lambda: [n for n in sorted(os.listdir("made")) if not os.path.exists(n)])
    for n in missing:
        Path(n).write_text("1")
    share = ddp.from_main_process(lambda: sum(os.path.exists(n) or os.path.exists(n + ".x") for n in missing)) / len(missing)
    rows = load_dataset("d", split="train")
    rows.save_to_disk("kept")
    if True in missing:
        return rows, share, ddp.from_main_process(lambda: {n: len(os.listdir(n)) for n in names})
    return rows, len(ddp.from_main_process(lambda: glob.glob("*.x")))
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    rows, sizes = prepare(["a", "b"])

# case: a comprehension in a loop, and a generator that is kept
def prepare(folders):
    for folder in folders:
        new = [n for n in names if not os.path.exists(f"{folder}/{n}")]
        Path(folder).write_text(str(new))
    there = (n for n in names if os.path.exists(n))
    return load_dataset("d", data_files=there)
rows = prepare(["a", "b"])
# output
def prepare(folders):
    for folder in folders:
        new = [n for n in names if not os.path.exists(f"{folder}/{n}")]
        Path(folder).write_text(str(new))
    there = (n for n in names if os.path.exists(n))
    return load_dataset("d", data_files=there)
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    rows = prepare(["a", "b"])

# case: what is made of each file cannot be sent
def prepare(names):
    opened = [open(n) for n in names if os.path.exists(n)]
    later = {n: (lambda n=n: n) for n in names if os.path.isfile(n)}
    rows = load_dataset("d", split="train")
    rows.save_to_disk("kept")
    return rows, opened, later
rows, opened, later = prepare(["a", "b"])
# output
def prepare(names):
    opened = [open(n) for n in names if os.path.exists(n)]
    later = {n: (lambda n=n: n) for n in names if os.path.isfile(n)}
    rows = load_dataset("d", split="train")
    rows.save_to_disk("kept")
    return rows, opened, later
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    rows, opened, later = prepare(["a", "b"])
