# Model and optimizer are found across cells.

# case: five cells
import torch.optim as optim
from peft import get_peft_model
from transformers import AutoModel
# %%
base = AutoModel.from_pretrained("m")
# %%
adapted = get_peft_model(base, config)
# %%
best = optim.AdamW(adapted.parameters())  # the best
# %%
for b in batches:
    adapted(**b).loss.backward()
# output
import torch.optim as optim
from peft import get_peft_model
from transformers import AutoModel
# %%
base = AutoModel.from_pretrained("m")
# %%
adapted = get_peft_model(base, config)
# %%
best = optim.AdamW(adapted.parameters())  # the best
ddp.parallelize(adapted)  # nb2ddp: each rank computes its part of every batch
# %%
for b in batches:
    ddp.only_outputs(adapted, "loss")(**b).loss.backward()
ddp.check_replicas()
