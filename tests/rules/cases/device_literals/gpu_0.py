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

# case: another GPU beside GPU 0
model = model.to("cuda:0")
judge = judge.to("cuda:1")
batch = batch.cuda(2)
# output
model = model.to(f"cuda:{local_rank}")
judge = judge.to("cuda:1")
batch = batch.cuda(2)
# note, line 2: "cuda:1" is one of several GPUs here, and a rank has one alone: it fails, or all put this there...
# note, line 3: "cuda:2" is one of several GPUs here...

# case: another GPU than GPU 0, which all that is named lies on
gpu = 1
torch.cuda.set_device(1)
torch.cuda.set_per_process_memory_fraction(0.5, 1)
device = torch.device(f"cuda:{gpu}" if torch.cuda.is_available() else "cpu")
model = model.cuda(gpu).to(torch.device("cuda", 1))
print(torch.cuda.get_device_name(1), torch.cuda.memory_allocated(1))
# output
gpu = 1
torch.cuda.set_device(local_rank)
torch.cuda.set_per_process_memory_fraction(0.5, local_rank)
device = torch.device(f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu")
model = model.cuda(local_rank).to(torch.device("cuda", local_rank))
print(torch.cuda.get_device_name(local_rank), torch.cuda.memory_allocated(local_rank))

# case: a text that is made with the number
gpu = 0
model.to("cuda:" + str(0))
device = torch.device("cuda:" + str(gpu) if torch.cuda.is_available() else "cpu")
other = "cuda:%d" % gpu
third = "cuda:{}".format(gpu)
print("cuda:", gpu, "on cuda:" + str(gpu), "cuda:%s" % name, "cuda:{}".format)
# output
gpu = 0
model.to("cuda:" + str(local_rank))
device = torch.device("cuda:" + str(local_rank) if torch.cuda.is_available() else "cpu")
other = "cuda:%d" % local_rank
third = "cuda:{}".format(local_rank)
print("cuda:", gpu, "on cuda:" + str(gpu), "cuda:%s" % name, "cuda:{}".format)

# case: numbers that are no GPU's
torch.cuda.Stream(priority=1)
play(sound, device=2)
temperature.to(3)

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

# case: another GPU to which something is loaded
model.load_state_dict(torch.load("model.pt", map_location={"cuda:0": "cuda:1"}))
# output
model.load_state_dict(torch.load("model.pt", map_location={"cuda:0": f"cuda:{local_rank}"}))
