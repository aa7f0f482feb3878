# Rank 0 alone deletes: a later rank would delete what rank 0 has made.

# first cell
import shutil
import glob, os
from pathlib import Path
from trl import SFTTrainer

# case: a folder
if os.path.exists("d"):
    shutil.rmtree("d")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: one rank deletes
    if is_main:
        if os.path.exists("d"):
            shutil.rmtree("d")

# case: the files of a folder
if os.path.isdir("d"):
    for f in os.listdir("d"):
        os.remove(os.path.join("d", f))
# output
with ddp.main_process_only() as is_main:  # nb2ddp: one rank deletes
    if is_main:
        if os.path.isdir("d"):
            for f in os.listdir("d"):
                os.remove(os.path.join("d", f))

# case: a file
if Path("log").exists():
    os.remove("log")
    print("gone")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: one rank deletes
    if is_main:
        if Path("log").exists():
            os.remove("log")
            print("gone")

# case: an archive that is deleted when its files are there
import zipfile
if not os.path.exists("a.zip"):
    fetch("a.zip")
    archive = zipfile.ZipFile("a.zip")
    archive.extractall("a")
    os.remove("a.zip")
# output
import zipfile
with ddp.main_process_only() as is_main:  # nb2ddp: one rank deletes
    if is_main:
        if not os.path.exists("a.zip"):
            fetch("a.zip")
            archive = zipfile.ZipFile("a.zip")
            archive.extractall("a")
            os.remove("a.zip")

# case: a file that is deleted when its rows are kept
rows = []
if os.path.exists("a.npy"):
    rows.append(load("a.npy"))
    net.reset()
    os.remove("a.npy")
# output
rows = []
if ddp.from_main_process(lambda: os.path.exists("a.npy")):
    rows.append(load("a.npy"))
    net.reset()
    os.remove("a.npy")

# case: a flag that is deleted when it has been seen
if os.path.exists("slower"):
    for group in opt.param_groups:
        group["lr"] *= 0.5
    os.remove("slower")
# output
if ddp.from_main_process(lambda: os.path.exists("slower")):
    for group in opt.param_groups:
        group["lr"] *= 0.5
    os.remove("slower")

# case: an archive that is deleted, whose rows are read
if not os.path.exists("a.zip"):
    rows = fetch("a.zip")
    os.remove("a.zip")
print(len(rows))
# output
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    if not os.path.exists("a.zip"):
        rows = fetch("a.zip")
        os.remove("a.zip")
print(len(rows))

# last cell
trainer = SFTTrainer(model)
trainer.train()
