# What makes much of rounding is noted.

# case: L-BFGS
import torch
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=20)
def closure():
    optimizer.zero_grad()
    loss = net(rows).pow(2).mean()
    loss.backward()
    return loss
optimizer.step(closure)
# output
import torch
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=20)
ddp.parallelize(net)  # nb2ddp: each rank computes its part of every batch
def closure():
    optimizer.zero_grad()
    loss = net(rows).pow(2).mean()
    loss.backward()
    return loss
optimizer.step(closure)
ddp.check_replicas()
# note, line 3: L-BFGS magnifies rounding: near the notebook's run, not equal
