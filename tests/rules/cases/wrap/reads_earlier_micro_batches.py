# What earlier micro-batches of a step have left, a rank that computes some of them alone does not have.

# first cell
from transformers import Trainer

# case: gradients, which are sums over micro-batches
class Mine(Trainer):
    def training_step(self, model, inputs, *rest):
        loss = super().training_step(model, inputs, *rest)
        for p in model.parameters():
            if p.grad is not None:
                p.data.add_(p.grad, alpha=1e-3)
        return loss
t = Mine(llm)
t.train()
# output
class Mine(Trainer):
    def training_step(self, model, inputs, *rest):
        loss = super().training_step(model, inputs, *rest)
        for p in model.parameters():
            if p.grad is not None:
                p.data.add_(p.grad, alpha=1e-3)
        return loss
t = Mine(llm)
ddp_model = ddp.wrap_trainer(t, whole=True)  # nb2ddp: every rank computes all micro-batches, because they read what earlier ones have left
t.train()
ddp.check_replicas(ddp_model)
# note, line 5: a micro-batch reads the gradients here...

# case: a list that a loss fills and reads
seen = []
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        if len(seen) > 60:
            loss = loss * seen[-1]
        seen.append(loss.item())
        return loss
t = Mine(llm)
t.train()
# output
seen = []
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        if len(seen) > 60:
            loss = loss * seen[-1]
        seen.append(loss.item())
        return loss
t = Mine(llm)
ddp_model = ddp.wrap_trainer(t, whole=True)  # nb2ddp: every rank computes all micro-batches, because they read what earlier ones have left
t.train()
ddp.check_replicas(ddp_model)
# note, line 5: a micro-batch reads `seen` here...

# case: a counter, what is set before it is read, what is made once, a moving average, and figures that only grow
class Mine(Trainer):
    calls, weights, mean = 0, None, 0.0
    def compute_loss(self, model, inputs, **options):
        self.calls += 1
        if self.weights is None:
            self.weights = inputs["labels"].bincount()
        loss = super().compute_loss(model, inputs, **options) * self.weights.sum()
        self.last = loss.item()
        self.mean = 0.9 * self.mean + 0.1 * loss.item()
        self.figures["loss"].append(self.last)
        if self.calls % 50 == 0:
            print(self.calls)
        return loss
t = Mine(llm)
t.train()
# output
class Mine(Trainer):
    calls, weights, mean = 0, None, 0.0
    def compute_loss(self, model, inputs, **options):
        self.calls += 1
        if self.weights is None:
            self.weights = inputs["labels"].bincount()
        loss = super().compute_loss(model, inputs, **options) * self.weights.sum()
        self.last = loss.item()
        self.mean = 0.9 * self.mean + 0.1 * loss.item()
        self.figures["loss"].append(self.last)
        if self.calls % 50 == 0:
            print(self.calls)
        return loss
t = Mine(llm)
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)

# case: no Trainer's step: a loop's model reads what its own calls have left
import torch
seen = []
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def forward(self, x):
        out = self.layer(x)
        seen.append(len(x))
        if len(seen) > 6:
            out = out - out.mean(0)
        return out
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x in loader:
    net(x).mean().backward()
    optimizer.step()
