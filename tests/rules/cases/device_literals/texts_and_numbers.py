# GPU 0, as a text or a number, is this rank's GPU; what names no GPU is left alone.

# case: cuda:0
x = x.to("cuda:0")
# output
x = x.to(f"cuda:{local_rank}")

# case: single quotes
x = x.to('cuda:0')
# output
x = x.to(f'cuda:{local_rank}')

# case: inside an f-string
print(f"{x.to('cuda:0')}")
# output
print(f"{x.to(f'cuda:{local_rank}')}")

# case: by keyword
x.to(device = "cuda:0")
# output
x.to(device = f"cuda:{local_rank}")

# case: a choice
device = "cuda:0" if torch.cuda.is_available() else "cpu"
# output
device = f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu"

# case: a device map
AutoModel.from_pretrained("m", device_map={"": "cuda:0"})
# output
AutoModel.from_pretrained("m", device_map={"": f"cuda:{local_rank}"})

# case: a number
model.cuda(0)
# output
model.cuda(local_rank)

# case: to a number
x.to(0)
# output
x.to(local_rank)

# case: a pipeline
pipe = pipeline("text-generation", device=0)
# output
pipe = pipeline("text-generation", device=local_rank)

# case: cuda
batch = batch.to("cuda")

# case: no number
model.cuda()

# case: a text about the GPU
print("running on cuda:0 now")

# case: a docstring
def f():
    "cuda:0"
    return 1

# case: seeds
import torch
torch.cuda.manual_seed(0)
torch.cuda.manual_seed_all(0)
torch.manual_seed(0)

# case: no device
x = torch.zeros(0)
range(0)
x.sum(0)

# case: a count
import torch
n = torch.cuda.device_count()

# case: reading the mask
import os
v = os.environ.get("CUDA_VISIBLE_DEVICES")
print(v)

# case: asking for the mask
import os
if "CUDA_VISIBLE_DEVICES" in os.environ:
    pass

# case: the environment of another process
env = {"CUDA_VISIBLE_DEVICES": "0"}
run("serve", env=env)

# case: a mask in a shell line
!CUDA_VISIBLE_DEVICES=0 python other.py

# case: showing the mask
%env CUDA_VISIBLE_DEVICES

# case: parts of a model on GPUs whose numbers a loop computes
import torch
class Split(torch.nn.Module):
    def __init__(self, gpus=2):
        self.blocks = [torch.nn.Linear(8, 8).to(i % gpus) for i in range(4)]
# decline, line 4: this spreads a model over several GPUs of one process, and a rank has one: put all of it on "cuda"

# case: the same by a name, and in a text
import torch
for i, block in enumerate(blocks):
    device = i // 2
    block.to(device)
for i in range(2):
    blocks[i].to(f"cuda:{i}")
# decline, line 6: this spreads a model over several GPUs of one process...
# decline, line 4: this spreads a model over several GPUs of one process...

# case: numbers of as many GPUs as a process sees, of one, and of a loop that computes none
import torch
gpus, only = torch.cuda.device_count(), 1
def devices():
    return [torch.device(f"cuda:{i}") for i in range(gpus)]
for i, block in enumerate(blocks):
    block.to(i % gpus)
    block.to(i % only)
for device in devices():
    net.to(device)

# case: a GPU of another kind
import torch
device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")
# note, line 2: this is a GPU of another kind, and the script trains on CUDA GPUs alone: write "cuda" here

# case: a GPU of another kind, by a name
import torch
if torch.backends.mps.is_available():
    device = "mps"
else:
    device = "cpu"
net.to(device)
# note, line 3: this is a GPU of another kind, and the script trains on CUDA GPUs alone: write "cuda" here

# case: a GPU of another kind, beside a comparison with CUDA
import torch
device = torch.device("mps")
if device.type == "cuda":
    torch.cuda.empty_cache()
# note, line 2: this is a GPU of another kind, and the script trains on CUDA GPUs alone: write "cuda" here

# case: a word that names no GPU, or only compares what there is
import torch
units = {"speed": "mps"}
print(units["speed"])
device = torch.accelerator.current_accelerator()
if str(device) == "mps":
    torch.mps.empty_cache()
net.to(device)

# case: a GPU of another kind, where there is no other
import torch
device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
