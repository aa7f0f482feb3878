# What torch is asked about GPU 0, it is asked about this rank's GPU.

# first cell
import torch

# case: properties
torch.cuda.get_device_properties(0)
# output
torch.cuda.get_device_properties(local_rank)

# case: set_device
torch.cuda.set_device(0)
# output
torch.cuda.set_device(local_rank)

# case: memory
torch.cuda.mem_get_info(device=0)
# output
torch.cuda.mem_get_info(device=local_rank)

# case: a fraction
torch.cuda.set_per_process_memory_fraction(0.5, 0)
# output
torch.cuda.set_per_process_memory_fraction(0.5, local_rank)

# case: a block
with torch.cuda.device(0):
    pass
# output
with torch.cuda.device(local_rank):
    pass

# case: a device of its parts
torch.device("cuda", 0)
# output
torch.device("cuda", local_rank)

# case: a device of its number
torch.device(0)
# output
torch.device(local_rank)

# case: a choice: an argument
pipeline(device=0 if torch.cuda.is_available() else -1)
# output
pipeline(device=local_rank if torch.cuda.is_available() else -1)

# case: a choice: a variable
device = 0 if torch.cuda.is_available() else "cpu"
model.to(device)
batch.to(device)
# output
device = local_rank if torch.cuda.is_available() else "cpu"
model.to(device)
batch.to(device)

# case: a choice: a number that is no GPU
workers = 0 if torch.cuda.is_available() else 2

# case: a choice: the CPU
gpus = 0 if not torch.cuda.is_available() else -1
