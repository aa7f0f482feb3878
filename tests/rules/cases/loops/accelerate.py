# An accelerator is made as in one process; a notebook launcher becomes a call.

# first cell
from accelerate import Accelerator, notebook_launcher
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)

# case: Accelerator()
accelerator = Accelerator()
opt = AdamW(llm.parameters())
llm, opt, loader = accelerator.prepare(llm, opt, loader)
for batch in loader:
    accelerator.backward(llm(**batch).loss)
    opt.step()
# output
accelerator = ddp.as_one_process(lambda: Accelerator())
opt = AdamW(llm.parameters())
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
llm, opt, loader = accelerator.prepare(llm, opt, loader)
for batch in loader:
    accelerator.backward(ddp.only_outputs(llm, "loss")(**batch).loss)
    opt.step()
ddp.check_replicas()

# case: Accelerator(mixed_precision="fp16")
accelerator = Accelerator(mixed_precision="fp16")
opt = AdamW(llm.parameters())
llm, opt, loader = accelerator.prepare(llm, opt, loader)
for batch in loader:
    accelerator.backward(llm(**batch).loss)
    opt.step()
# output
accelerator = ddp.as_one_process(lambda: Accelerator(mixed_precision="fp16"))
opt = AdamW(llm.parameters())
ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
llm, opt, loader = accelerator.prepare(llm, opt, loader)
for batch in loader:
    accelerator.backward(ddp.only_outputs(llm, "loss")(**batch).loss)
    opt.step()
ddp.check_replicas()

# case: notebook_launcher with arguments
def f(a, b):
    pass
notebook_launcher(f, (1, x), num_processes=1)
# output
def f(a, b):
    pass
f(1, x)

# case: notebook_launcher with an empty tuple
def f(a, b):
    pass
notebook_launcher(f, args=())
# output
def f(a, b):
    pass
f()

# case: notebook_launcher without arguments
def f(a, b):
    pass
notebook_launcher(f)
# output
def f(a, b):
    pass
f()

# case: notebook_launcher with arguments from a call
def f(a, b):
    pass
notebook_launcher(f, args=given())
# output
def f(a, b):
    pass
f(*given())

# case: a loop that notebook_launcher starts
def train(net):
    opt = AdamW(net.parameters())
    for batch in loader:
        net(**batch).loss.backward()
notebook_launcher(train, (llm,))
# output
def train(net):
    opt = AdamW(net.parameters())
    ddp.parallelize(net)  # nb2ddp: each rank computes its part of every batch
    for batch in loader:
        ddp.only_outputs(net, "loss")(**batch).loss.backward()
    ddp.check_replicas()
train(llm)

# case: an attribute of a class
class Setup:
    kind = "fp16"
    accelerator = Accelerator(mixed_precision=kind)
# output
class Setup:
    kind = "fp16"
    accelerator = ddp.as_one_process(lambda kind=kind: Accelerator(mixed_precision=kind))

# case: notebook_launcher that starts several processes in the notebook
def f(a):
    for batch in loader:
        llm(**batch).loss.backward()
n = 2
notebook_launcher(f, (1,), num_processes=n)
# decline, line 5: this trains in 2 processes as it is, each with batches of its own, and nb2ddp converts what one process trains: run the notebook itself, or write num_processes=1

# case: notebook_launcher that starts a process on each core of a TPU
!pip install torch_xla[tpu]
def f(a):
    for batch in loader:
        llm(**batch).loss.backward()
notebook_launcher(f, (1,))
# decline, line 5: this trains in a process on each TPU core as it is, each with batches of its own...
