# Ranks and their number are for the script: what is no test for rank 0 and no choice of the device is declined.

# first cell
import os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

# last cell
trainer = Trainer(model, TrainingArguments("o", per_device_train_batch_size=4, gradient_accumulation_steps=2), train_dataset=data)
trainer.train()

# case: a batch that the notebook divides
world_size = torch.distributed.get_world_size()
steps = 8 // world_size
# decline, line 2: `8 // world_size` asks for the number of ranks; ...

# case: below a test
world_size = torch.distributed.get_world_size()
ddp = world_size != 1
if ddp:
    steps //= world_size
# decline, line 3: `ddp` asks for the number of ranks; ...
# decline, line 4: `world_size` asks for the number of ranks; ...

# case: a learning rate
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4 * dist.get_world_size())
# decline, line 1: `1e-4 * dist.get_world_size()` asks for the number of ranks; ...

# case: a seed
torch.manual_seed(42 + torch.distributed.get_rank())
# decline, line 1: `42 + torch.distributed.get_rank()` asks for the rank; ...

# case: rows
rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
for i in range(rank, len(rows), world_size):
    total += score(rows[i])
# decline, line 2: `rank` asks for the rank; ...

# case: a collective
dist.all_reduce(total)
# decline, line 1: `dist.all_reduce(total)` asks for the process group; ...

# case: an argument that a test of the rank chooses, by a name
is_main = torch.distributed.get_rank() == 0
strategy = "steps" if is_main else "no"
args = TrainingArguments("out", save_strategy=strategy)
# decline, line 3: `strategy` asks for the rank; ...

# case: tests for rank 0, figures that are printed, and devices
local_rank = torch.distributed.get_rank()
rank = dist.get_rank() if dist.is_initialized() else 0
def is_main():
    return not dist.is_initialized() or dist.get_rank() == 0
if is_main() and verbose:
    print(f"rank {rank} of {os.environ.get('WORLD_SIZE')}")
if rank in (-1, 0):
    best = 3
torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank)
net = AutoModelForCausalLM.from_pretrained("m", device_map={"": local_rank})
# output
local_rank = torch.distributed.get_rank()
rank = dist.get_rank() if dist.is_initialized() else 0
def is_main():
    return not dist.is_initialized() or dist.get_rank() == 0
if is_main() and verbose:
    print(f"rank {rank} of {os.environ.get('WORLD_SIZE')}")
if rank in (-1, 0):
    best = 3
torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank)
net = AutoModelForCausalLM.from_pretrained("m", device_map={"": local_rank})
ddp.init_process_group()  # nb2ddp: join the process group

# case: a group that the notebook makes where torchrun started it
several = torch.distributed.get_world_size() > 1
if several:
    torch.cuda.set_device(torch.distributed.get_rank())
    dist.init_process_group("nccl")
    rank = dist.get_rank()
else:
    rank = 0
model = AutoModelForCausalLM.from_pretrained("m")
# output
several = torch.distributed.get_world_size() > 1
if several:
    torch.cuda.set_device(torch.distributed.get_rank())
    dist.init_process_group("nccl")
    rank = dist.get_rank()
else:
    rank = 0
model = AutoModelForCausalLM.from_pretrained("m")
ddp.init_process_group()  # nb2ddp: join the process group

# case: adapters have ranks too
from peft import LoraConfig
rank = 16
config = LoraConfig(r=rank, lora_alpha=2 * rank, rank_pattern={"q": rank // 2})
for rank in (4, 8):
    print(2 * rank)
model = AutoModelForCausalLM.from_pretrained("m")
# output
from peft import LoraConfig
rank = 16
config = LoraConfig(r=rank, lora_alpha=2 * rank, rank_pattern={"q": rank // 2})
for rank in (4, 8):
    print(2 * rank)
model = AutoModelForCausalLM.from_pretrained("m")
ddp.init_process_group()  # nb2ddp: join the process group

# case: an Accelerator, which sees one process in the script
from accelerate import Accelerator
accelerator = Accelerator()
steps = 64 // accelerator.num_processes
name = f"log_{accelerator.process_index}"
# output
from accelerate import Accelerator
ddp.init_process_group()  # nb2ddp: join the process group
accelerator = Accelerator()
steps = 64 // accelerator.num_processes
name = f"log_{accelerator.process_index}"

# case: torchrun's variables stay where a Trainer generates
from trl import GRPOTrainer
grpo = GRPOTrainer(model, reward_funcs=f)
seed = 42 + int(os.environ["RANK"])
grpo.train()
# decline, line 3: `"RANK"` asks for the rank; ...
