# The name of the runtime module is not taken from the notebook.

# first cell
import torch
from torch import nn
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)

# case: ddp is a variable
ddp = 1
opt = AdamW(llm.parameters())
for batch in loader:
    loss = llm(**batch).loss
    loss.backward()
    opt.step()
# output
ddp = 1
opt = AdamW(llm.parameters())
ddp_ddp.parallelize(llm)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    loss = ddp_ddp.only_outputs(llm, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp_ddp.check_replicas()
