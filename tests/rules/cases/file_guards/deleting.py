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

# last cell
trainer = SFTTrainer(model)
trainer.train()
