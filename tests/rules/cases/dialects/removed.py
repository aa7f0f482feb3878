# Traces of an earlier attempt at several GPUs are removed or replaced.

# case: a process group joined by hand
import torch.distributed as dist
def setup():
    dist.init_process_group(backend="nccl")
    return 0
rank = setup()
if rank is not None:
    dist.destroy_process_group()
# output
import torch.distributed as dist
def setup():
    return 0
rank = setup()
if rank is not None:
    pass

# case: a model wrapped and unwrapped by hand
from torch.nn.parallel import DistributedDataParallel as DDP
if local_rank is not None:
    model = DDP(model, device_ids=[local_rank])
    print("wrapped")
inner = model.module
other = DDP(model)
# output
from torch.nn.parallel import DistributedDataParallel as DDP
if local_rank is not None:
    print("wrapped")
inner = model
other = model

# case: DataParallel in a loop of the notebook's
import torch
from torch import nn
from torch.nn.parallel import DataParallel
if torch.cuda.device_count() > 1:
    model = nn.DataParallel(model, device_ids=[0, 1], output_device=0)
    head = DataParallel(
        Head(),
        list(range(4)),
        dim=1,  # sequence first
    )
    tail = nn.DataParallel(device_ids=[0, 1], module=Tail())
    last = nn.DataParallel(Last(), None, None, 1)
net = nn.DataParallel(model).cuda()
inner = net.module
# output
import torch
from torch import nn
from torch.nn.parallel import DataParallel
if torch.cuda.device_count() > 1:
    model = nn.DataParallel(model, device_ids=[local_rank])
    head = DataParallel(
        Head(),  # sequence first
        device_ids=[local_rank],
    )
    tail = nn.DataParallel(device_ids=[local_rank], module=Tail())
    last = nn.DataParallel(Last(), device_ids=[local_rank])
net = nn.DataParallel(model, device_ids=[local_rank]).cuda()
inner = net.module

# case: DataParallel around a Trainer's model
import torch
from transformers import Trainer
net = torch.nn.DataParallel(model, device_ids=[0, 1])
trainer = Trainer(net)
net.module.save_pretrained("out")
# output
import torch
from transformers import Trainer
net = model
trainer = Trainer(net)
net.save_pretrained("out")

# case: rank 0's arguments: rank == 0
from trl import SFTConfig
rank = torch.distributed.get_rank()
a = SFTConfig("o", save_strategy="steps" if rank == 0 else "no")
# output
from trl import SFTConfig
rank = 0
a = SFTConfig("o", save_strategy="steps" if rank == 0 else "no")

# case: arguments by torchrun's variables, which the script takes away: those of one process
import os
from trl import SFTConfig
local_rank = int(os.environ.get("LOCAL_RANK", -1))
a = SFTConfig("o", save_strategy="steps" if local_rank in (-1, 0) else "no")

# case: barriers before and after training
import torch.distributed as dist
dist.barrier()
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
dist.barrier()
# output
import torch.distributed as dist
ddp.from_all_ranks(None)
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()

# case: a sampler of the notebook's own
from torch.utils.data.distributed import DistributedSampler
s = DistributedSampler(d)
# decline, line 2: this sampler gives each process its part of the rows already...

# case: barriers that let rank 0 go first
import os
import torch
from trl import SFTTrainer
local_rank = torch.distributed.get_rank()
if local_rank not in (-1, 0) and mode == "train":
    torch.distributed.barrier()
rows = load_dataset("rows")
features = rows.map(shorten)
if local_rank == 0:
    torch.distributed.barrier()
trainer = SFTTrainer(model)
trainer.train()
# output
import os
import torch
from trl import SFTTrainer
local_rank = 0
if local_rank not in (-1, 0) and mode == "train":
    ddp.from_all_ranks(None)
rows = load_dataset("rows")
features = rows.map(shorten)
if local_rank == 0:
    ddp.from_all_ranks(None)
trainer = SFTTrainer(model)
trainer.train()
