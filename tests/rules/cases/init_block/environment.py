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

# case: a __future__ import below the init block
import os
os.environ["A"] = "1"
import torch
# %%
from __future__ import annotations
x = 1
# output
import os
os.environ["A"] = "1"
__nb2ddp_init__
import torch
# %%
x = 1
# head: from __future__ import annotations
