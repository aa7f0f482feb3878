# A test for a file below the notebook's own test of the rank is left alone: the other ranks do not come there.

# first cell
import os
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
rank = torch.distributed.get_rank()
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(data, batch_size=4)

# last cell
for x in loader:
    model(x).loss.backward()
    optimizer.step()

# case: in the branch of one rank
if rank == 0:
    if not os.path.exists("out"):
        os.mkdir("out")

# case: in the test itself
if rank == 0 and not os.path.exists("out"):
    os.mkdir("out")
# output
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    if rank == 0 and not os.path.exists("out"):
        os.mkdir("out")
