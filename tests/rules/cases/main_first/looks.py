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
