# What an Accelerator does on one rank alone does not keep a write from being rank 0's.

# first cell
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM
accelerator = Accelerator()
llm = AutoModelForCausalLM.from_pretrained("m")
opt = torch.optim.AdamW(llm.parameters())
llm, opt, loader = accelerator.prepare(llm, opt, loader)
for batch in loader:
    accelerator.backward(llm(**batch).loss)
    opt.step()

# case: the weights of the unwrapped model
torch.save(accelerator.unwrap_model(llm).state_dict(), "llm.pt")
accelerator.wait_for_everyone()
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        torch.save(accelerator.unwrap_model(llm).state_dict(), "llm.pt")
accelerator.wait_for_everyone()

# case: the weights as Accelerate gives them
torch.save(accelerator.get_state_dict(llm), "llm.pt")
accelerator.wait_for_everyone()
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        torch.save(accelerator.get_state_dict(llm), "llm.pt")
accelerator.wait_for_everyone()

# case: what a function for the main process writes, all ranks may read: each rank runs it
@accelerator.on_main_process
def note(name):
    open(name, "w").write("a line")
note("a.txt")
print(open("a.txt").read())
accelerator.wait_for_everyone()
# output
@accelerator.on_main_process
def note(name):
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            open(name, "w").write("a line")
note("a.txt")
print(open("a.txt").read())
accelerator.wait_for_everyone()

# case: what needs every rank
torch.save(accelerator.gather(llm(x)), "outputs.pt")
accelerator.wait_for_everyone()
# note, line 1: this writes on every rank, for every rank needs its statement...
