# A write that only rank 0 reaches is not gated.

# first cell
import torch
from trl import SFTTrainer

# case: a notebook that does not train
llm.save_pretrained("a")

# case: a function that is called after training
def save():
    torch.save(1, "x.pt")
t = SFTTrainer(llm)
t.train()
save()
# output
def save():
    if ddp.is_main_process:  # nb2ddp: only rank 0 writes
        torch.save(1, "x.pt")
t = SFTTrainer(llm)
t.train()
save()
