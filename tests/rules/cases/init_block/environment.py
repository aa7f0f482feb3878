# What sets the environment stands above the init block.

# case: a comment above the heavy import
import os
os.environ["A"] = "1"

# The model
import torch
# output
import os
os.environ["A"] = "1"

# The model
__nb2ddp_init__
import torch

# case: environment in a later cell than the installs
!pip install unsloth
# %%
%env A=1
# %%
import torch
# output
get_ipython().system('pip install unsloth')
# %%
get_ipython().run_line_magic('env', 'A=1')
# %%
__nb2ddp_init__
import torch
