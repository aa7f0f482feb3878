# What sets the environment, and is light, stands above the block.

# case: a variable
import os
os.environ["A"] = "1"
import torch
# output
import os
os.environ["A"] = "1"
__nb2ddp_init__
import torch

# case: a variable of a constant
import os
TOKEN = "x"
os.environ["HF_TOKEN"] = TOKEN
import torch
# output
import os
TOKEN = "x"
os.environ["HF_TOKEN"] = TOKEN
__nb2ddp_init__
import torch

# case: a default
import os
os.environ.setdefault("A", "1")
import torch
# output
import os
os.environ.setdefault("A", "1")
__nb2ddp_init__
import torch

# case: a variable longer
import os
os.environ["A"] += ":x"
import torch
# output
import os
os.environ["A"] += ":x"
__nb2ddp_init__
import torch

# case: a variable taken away
import os
del os.environ["A"]
import torch
# output
import os
del os.environ["A"]
__nb2ddp_init__
import torch

# case: a search path
import sys
sys.path.append("src")
import torch
# output
import sys
sys.path.append("src")
__nb2ddp_init__
import torch

# case: under an if with an else
import os
if "KAGGLE" in os.environ:
    os.environ["A"] = "1"
else:
    os.environ["A"] = "2"
import torch
# output
import os
if "KAGGLE" in os.environ:
    os.environ["A"] = "1"
else:
    os.environ["A"] = "2"
__nb2ddp_init__
import torch

# case: in a for loop
import os
for name in ("A", "B"):
    os.environ[name] = "1"
import torch
# output
import os
for name in ("A", "B"):
    os.environ[name] = "1"
__nb2ddp_init__
import torch

# case: in a try
import os
try:
    os.environ["A"] = "1"
except KeyError:
    pass
import torch
# output
import os
try:
    os.environ["A"] = "1"
except KeyError:
    pass
__nb2ddp_init__
import torch

# case: with a docstring
"""About."""
import os
os.environ["A"] = "1"
import torch
# output
"""About."""
import os
os.environ["A"] = "1"
__nb2ddp_init__
import torch

# case: a mask
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
import torch
# output
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
__nb2ddp_init__
import torch
