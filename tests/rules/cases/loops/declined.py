# A loop whose model cannot be seen is declined.

# first cell
import torch
from torch import nn
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

# case: no model that can be seen
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
for batch in loader:
    step(batch).backward()
# decline, line 4: nb2ddp sees no PyTorch model that this backward() trains: no optimizer is given model.parameters(). Give them to one where it trains a model; gradients of inputs, plain tensors and NumPy need no second GPU

# case: Accelerate's batches beside a Trainer that generates
from accelerate import Accelerator
from trl import GRPOTrainer
trainer = GRPOTrainer(llm, reward_funcs=short)
trainer.train()
net = nn.Linear(2, 2)
optimizer = AdamW(net.parameters())
accelerator = Accelerator()
net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(data))
for batch in loader:
    accelerator.backward(net(batch).sum())
    optimizer.step()
# decline, line 8: beside a Trainer that generates, Accelerate knows of all ranks, and gives other batches than one process has: train this in its own notebook

# case: a tensor
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
opt = AdamW([image])
for i in range(9):
    (image ** 2).sum().backward()
    opt.step()
# decline, line 5: nb2ddp sees no PyTorch model that ...

# case: layers that are no modules
class Layer:
    def parameters(self):
        return [self.weight]
parameters = [p for layer in layers for p in layer.parameters()]
for x in batches:
    loss_of(x).backward()
    for p in parameters:
        p.data -= 0.1 * p.grad
# decline, line 6: nb2ddp sees no PyTorch model that ...

# case: a tensor, beside a model that stays as it is
vgg = models.vgg19().features
for p in vgg.parameters():
    p.requires_grad_(False)
for q in vgg[3].parameters():
    q.requires_grad = False
opt = AdamW([image])
for i in range(9):
    features(image, vgg).backward()
    opt.step()
# decline, line 8: nb2ddp sees no PyTorch model that ...
