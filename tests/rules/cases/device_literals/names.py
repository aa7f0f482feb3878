# A function of torch.cuda is known by its import, under any name.

# case: as th: properties
import torch as th
th.cuda.get_device_properties(0)
# output
import torch as th
th.cuda.get_device_properties(local_rank)

# case: as th: set_device
import torch as th
th.cuda.set_device(0)
# output
import torch as th
th.cuda.set_device(local_rank)

# case: as th: memory
import torch as th
th.cuda.mem_get_info(device=0)
# output
import torch as th
th.cuda.mem_get_info(device=local_rank)

# case: as th: a fraction
import torch as th
th.cuda.set_per_process_memory_fraction(0.5, 0)
# output
import torch as th
th.cuda.set_per_process_memory_fraction(0.5, local_rank)

# case: as th: a block
import torch as th
with th.cuda.device(0):
    pass
# output
import torch as th
with th.cuda.device(local_rank):
    pass

# case: as th: a device of its parts
import torch as th
th.device("cuda", 0)
# output
import torch as th
th.device("cuda", local_rank)

# case: as th: a device of its number
import torch as th
th.device(0)
# output
import torch as th
th.device(local_rank)

# case: the function alone
from torch.cuda import get_device_properties as props
props(0).total_memory
# output
from torch.cuda import get_device_properties as props
props(local_rank).total_memory

# case: local_rank is the notebook's
local_rank = 3
x.to("cuda:0")
x.cuda(0)
# output
local_rank = 3
x.to(f"cuda:{ddp_local_rank}")
x.cuda(ddp_local_rank)
