# CUDA_VISIBLE_DEVICES is set only where the script runs as one process.

# first cell
import os

# case: set
# one GPU
os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # the first
x = 1
# output
# one GPU
if os.environ.get("WORLD_SIZE", "1") == "1":  # nb2ddp: under torchrun each rank has its own GPU
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # the first
x = 1

# case: set below the init block, which has taken torchrun's variables away
import torch
print(torch.__version__)
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
# output
import torch
print(torch.__version__)
if world_size == 1:  # nb2ddp: under torchrun each rank has its own GPU
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"

# case: set under a test of the notebook's own
import torch
world_size = int(os.environ.get("WORLD_SIZE", 1))
if world_size == 1:
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
# output
import torch
world_size = int(os.environ.get("WORLD_SIZE", 1))
if world_size == 1:
    if ddp_world_size == 1:  # nb2ddp: under torchrun each rank has its own GPU
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"

# case: set under an if
if True:
  os.environ["CUDA_VISIBLE_DEVICES"] = "0"
# output
if True:
  if os.environ.get("WORLD_SIZE", "1") == "1":  # nb2ddp: under torchrun each rank has its own GPU
      os.environ["CUDA_VISIBLE_DEVICES"] = "0"

# case: set by a call
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
# output
if os.environ.get("WORLD_SIZE", "1") == "1":  # nb2ddp: under torchrun each rank has its own GPU
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")

# case: deleted
del os.environ["CUDA_VISIBLE_DEVICES"]
# output
if os.environ.get("WORLD_SIZE", "1") == "1":  # nb2ddp: under torchrun each rank has its own GPU
    del os.environ["CUDA_VISIBLE_DEVICES"]

# case: with more on the line
os.environ["CUDA_VISIBLE_DEVICES"] = "0"; os.environ["A"] = "1"
# output
if os.environ.get("WORLD_SIZE", "1") == "1":  # nb2ddp: under torchrun each rank has its own GPU
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
os.environ["A"] = "1"

# case: among others
os.environ.update({
    "CUDA_VISIBLE_DEVICES": "0",
    "A": "1",
})
# decline, line 1: set CUDA_VISIBLE_DEVICES on a line of its own... the mask would put all on one

# case: read, though it need not be set
print(os.environ["CUDA_VISIBLE_DEVICES"])
# output
print(os.environ.get("CUDA_VISIBLE_DEVICES"))

# case: set by a magic
%env CUDA_VISIBLE_DEVICES=0
# output
if os.environ.get("WORLD_SIZE", "1") == "1":  # nb2ddp: under torchrun each rank has its own GPU
    get_ipython().run_line_magic('env', 'CUDA_VISIBLE_DEVICES=0')
