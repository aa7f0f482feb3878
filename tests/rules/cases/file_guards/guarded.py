# Rank 0 goes first through an `if` that looks at files, so that all ranks find the same.

# first cell
import glob, os
import torch
from pathlib import Path
from trl import SFTTrainer

# case: os.path
if not os.path.exists("d"):
    os.makedirs("d")
# output
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    if not os.path.exists("d"):
        os.makedirs("d")

# case: pathlib
if not Path("d").is_dir(): Path("d").mkdir()
# output
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    if not Path("d").is_dir(): Path("d").mkdir()

# case: glob
if len(glob.glob("*.txt")) > 3:
    x = load(1)
# output
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    if len(glob.glob("*.txt")) > 3:
        x = load(1)

# case: a list of files
if "d" in os.listdir("."):
    x = load(1)
# output
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    if "d" in os.listdir("."):
        x = load(1)

# case: a conditional value
data = load("d") if os.path.exists("d") else make("d")
# output
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    data = load("d") if os.path.exists("d") else make("d")

# case: in the second test
if big:
    x = load(1)
elif os.path.isfile("d"):
    x = load(2)
else:
    x = load(3)
# output
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    if big:
        x = load(1)
    elif os.path.isfile("d"):
        x = load(2)
    else:
        x = load(3)

# case: comments and texts of several lines
# the data
if os.path.exists("d"):  # there
  text = write("""
one
  two""")
  # end
x = 1
# output
# the data
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    if os.path.exists("d"):  # there
      text = write("""
one
  two""")
      # end
x = 1

# case: neighbours share a block
if os.path.exists("a"):
    a = load(1)
if os.path.exists("b"):
    b = load(1)
# output
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    if os.path.exists("a"):
        a = load(1)
    if os.path.exists("b"):
        b = load(1)

# case: inside a for
for d in folders:
    write(d)
    if not os.path.exists("d"):
        os.makedirs("d")
# output
for d in folders:
    write(d)
    with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
        if not os.path.exists("d"):
            os.makedirs("d")

# case: inside a with
with lock:
    write(d)
    if not os.path.exists("d"):
        os.makedirs("d")
# output
with lock:
    write(d)
    with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
        if not os.path.exists("d"):
            os.makedirs("d")

# case: inside another if
if big:
    write(d)
    if not os.path.exists("d"):
        os.makedirs("d")
# output
if big:
    write(d)
    with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
        if not os.path.exists("d"):
            os.makedirs("d")

# case: inside a try
try:
    write(d)
    if not os.path.exists("d"):
        os.makedirs("d")
except OSError:
    pass
# output
try:
    write(d)
    with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
        if not os.path.exists("d"):
            os.makedirs("d")
except OSError:
    pass

# case: an if inside a guarded if
if os.path.exists("a"):
    if os.path.exists("b"):
        x = load(1)
# output
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    if os.path.exists("a"):
        if os.path.exists("b"):
            x = load(1)

# case: a line that loads or saves
net.load_state_dict(torch.load("w.pt")) if os.path.exists("w.pt") else torch.save(net.state_dict(), "w.pt")
# output
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    net.load_state_dict(torch.load("w.pt")) if os.path.exists("w.pt") else torch.save(net.state_dict(), "w.pt")

# last cell
trainer = SFTTrainer(model)
trainer.train()
