# GPU 0 by its number is this rank's GPU.

# first cell
import torch

# case: a device that is kept
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
model.to(device)
batch = {name: tensor.to("cuda:0") for name, tensor in batch.items()}
# output
device = torch.device(f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu")
model.to(device)
batch = {name: tensor.to(f"cuda:{local_rank}") for name, tensor in batch.items()}

# case: a report about the GPU
gpu = torch.cuda.get_device_properties(0)
print(f"{gpu.name}: {gpu.total_memory / 2**30:.1f} GiB")
# output
gpu = torch.cuda.get_device_properties(local_rank)
print(f"{gpu.name}: {gpu.total_memory / 2**30:.1f} GiB")

# case: a device without a number
model.to("cuda")
model.cuda()

# case: a seed, which is no device
torch.cuda.manual_seed(0)

# case: a text about the GPU
print("running on cuda:0 now")

# case: another GPU
judge = judge.to("cuda:1")
# note, line 1: "cuda:1" names a GPU of another rank...

# case: a file that is loaded, which init() brings to the rank's own GPU
model.load_state_dict(torch.load("model.pt"))
model.load_state_dict(torch.load("model.pt", map_location="cuda"))
model.load_state_dict(torch.load("model.pt", torch.device("cpu")))

# case: a file that is loaded to GPU 0
model.load_state_dict(torch.load("model.pt", map_location="cuda:0"))
model.load_state_dict(torch.load("model.pt", map_location=torch.device("cuda:0")))
# output
model.load_state_dict(torch.load("model.pt", map_location=f"cuda:{local_rank}"))
model.load_state_dict(torch.load("model.pt", map_location=torch.device(f"cuda:{local_rank}")))

# case: the GPUs from which something was saved
model.load_state_dict(torch.load("model.pt", map_location={"cuda:1": "cpu", "cuda:0": "cuda:0"}))
places = {"cuda:0": "cpu", "cuda:3": "cuda"}
model.load_state_dict(torch.load("model.pt", places))
# output
model.load_state_dict(torch.load("model.pt", map_location={"cuda:1": "cpu", "cuda:0": f"cuda:{local_rank}"}))
places = {"cuda:0": "cpu", "cuda:3": "cuda"}
model.load_state_dict(torch.load("model.pt", places))

# case: a GPU of another rank to which something is loaded
model.load_state_dict(torch.load("model.pt", map_location={"cuda:0": "cuda:1"}))
# note, line 1: "cuda:1" names a GPU of another rank...
