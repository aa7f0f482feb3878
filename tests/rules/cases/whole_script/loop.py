# A notebook with a hand-written loop becomes a script: all rules together, below the head.

# case: epochs, a validation and a checkpoint
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification
device = torch.device("cuda:0")
model = AutoModelForSequenceClassification.from_pretrained("org/Model-100M").to(device)
loader = DataLoader(data, batch_size = 32, shuffle = True)
optimizer = torch.optim.AdamW(model.parameters(), lr = 1e-4)
# %%
for epoch in range(3):
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"epoch {epoch}: {loss.item():.3f}")
    torch.save(model.state_dict(), "checkpoint.pt")
# %%
model.save_pretrained("final")
# output
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification
device = torch.device(f"cuda:{local_rank}")
model = AutoModelForSequenceClassification.from_pretrained("org/Model-100M").to(device)
ddp.init_process_group()  # nb2ddp: join the process group
loader = DataLoader(data, batch_size = 32, shuffle = True)
optimizer = torch.optim.AdamW(model.parameters(), lr = 1e-4)
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
# %%
for epoch in range(3):
    for batch in loader:
        loss = ddp.only_outputs(model, "loss")(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"epoch {epoch}: {loss.item():.3f}")
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            torch.save(model.state_dict(), "checkpoint.pt")
ddp.check_replicas()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# %%
model.save_pretrained("final")
