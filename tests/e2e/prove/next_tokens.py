# A loop whose batches are one tensor, of which the model gets all columns but the last, on a GPU.
# %%
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(3)
loader = DataLoader(torch.randint(0, 40, (48, 9)), batch_size=8, shuffle=True)
# %%
model = nn.Sequential(nn.Embedding(40, 16), nn.Tanh(), nn.Linear(16, 40)).to("cuda")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
# %%
for ids in loader:
    ids = ids.to("cuda")
    logits = model(ids[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
