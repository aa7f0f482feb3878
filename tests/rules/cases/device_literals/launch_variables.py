# What torchrun tells each rank is set only where the script runs as one process.

# first cell
import os

# case: one process, by hand
os.environ["RANK"] = "0"
os.environ["LOCAL_RANK"] = "0"
os.environ["WORLD_SIZE"] = "1"
os.environ["MASTER_ADDR"] = "localhost"
os.environ["MASTER_PORT"] = "9994"  # modify if RuntimeError: Address already in use
x = 1
# output
if os.environ.get("WORLD_SIZE", "1") == "1":  # nb2ddp: torchrun sets it
    os.environ["RANK"] = "0"
if os.environ.get("WORLD_SIZE", "1") == "1":  # nb2ddp: torchrun sets it
    os.environ["LOCAL_RANK"] = "0"
if os.environ.get("WORLD_SIZE", "1") == "1":  # nb2ddp: torchrun sets it
    os.environ["WORLD_SIZE"] = "1"
if os.environ.get("WORLD_SIZE", "1") == "1":  # nb2ddp: torchrun sets it
    os.environ["MASTER_ADDR"] = "localhost"
if os.environ.get("WORLD_SIZE", "1") == "1":  # nb2ddp: torchrun sets it
    os.environ["MASTER_PORT"] = "9994"  # modify if RuntimeError: Address already in use
x = 1

# case: with more on the line
os.environ["RANK"] = "0"; os.environ["WORLD_SIZE"] = "1"
# output
if os.environ.get("WORLD_SIZE", "1") == "1":  # nb2ddp: torchrun sets it
    os.environ["RANK"] = "0"
if os.environ.get("WORLD_SIZE", "1") == "1":  # nb2ddp: torchrun sets it
    os.environ["WORLD_SIZE"] = "1"

# case: several at once
os.environ.update({"WORLD_SIZE": "1", "A": "1"})
os.environ.update(dict(A="1"), LOCAL_RANK="0")
os.environ.update({"A": "1"})
# decline, line 1: set WORLD_SIZE on a line of its own... torchrun tells each rank this...
# decline, line 2: set LOCAL_RANK on a line of its own... torchrun tells each rank this...

# case: taken away
os.environ.pop("WORLD_SIZE", None)
del os.environ["RANK"]
# output
if os.environ.get("WORLD_SIZE", "1") == "1":  # nb2ddp: torchrun sets it
    os.environ.pop("WORLD_SIZE", None)
if os.environ.get("WORLD_SIZE", "1") == "1":  # nb2ddp: torchrun sets it
    del os.environ["RANK"]

# case: in a function
def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    torch.cuda.set_device(rank)
# output
def setup(rank, world_size):
    if ddp_world_size == 1:  # nb2ddp: torchrun sets it
        os.environ["MASTER_ADDR"] = "localhost"
    torch.cuda.set_device(rank)

# case: set by a magic
%env WORLD_SIZE=1
# output
if os.environ.get("WORLD_SIZE", "1") == "1":  # nb2ddp: torchrun sets it
    get_ipython().run_line_magic('env', 'WORLD_SIZE=1')

# case: where it is missing alone, as it is below the init block
import torch
import transformers
os.environ.setdefault("RANK", "0")
if "WORLD_SIZE" not in os.environ:
    os.environ["WORLD_SIZE"] = "1"
# output
import torch
import transformers
if world_size == 1:  # nb2ddp: torchrun sets it
    os.environ.setdefault("RANK", "0")
if "WORLD_SIZE" not in os.environ:
    if world_size == 1:  # nb2ddp: torchrun sets it
        os.environ["WORLD_SIZE"] = "1"

# case: read
rank = int(os.environ["RANK"])
print(os.environ["WORLD_SIZE"])
%env RANK
