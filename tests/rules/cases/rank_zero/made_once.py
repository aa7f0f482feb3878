# A file that one process alone can make: the others wait for rank 0, and learn whether it could.

# first cell
import os
from trl import SFTTrainer

# case: below a `try` that asks whether the file is there
try:
    with open("lock", "x") as f:
        f.write("a")
    first = True
except FileExistsError:
    first = False
# output
try:
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            with open("lock", "x") as f:
                f.write("a")
    first = True
except FileExistsError:
    first = False

# case: without a `with`, in a cell
open("lock", "x")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        open("lock", "x")

# case: open until later
log = open("log.csv", "x")
log.write("a")
# decline, line 1: only one process can open a file with "x"...

# case: open until later in a function
def note(text):
    log = open("log.csv", "x")
    log.write(text)
    log.close()
note("a")
# decline, line 2: only one process can open a file with "x"...

# case: a hard link
os.link("last.pt", "best.pt")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        os.link("last.pt", "best.pt")

# case: lines that are added and read
with open("log.txt", "a+") as f:
    f.write("a")
    f.seek(0)
    count = len(f.readlines())
print(count)
# decline, line 1: every rank would change this file, one after another...

# last cell
trainer = SFTTrainer(model)
trainer.train()
