# Where no environment is set first, the init block is the first of the script: no place is marked.

# case: a heavy import first
import torch
import os
os.environ["A"] = "1"

# case: imports and a variable
import os, json
x = 1
import torch

# case: nothing but environment
import os
os.environ["A"] = "1"
