# A write whose arguments change the model: all ranks do it, and go on with the same model.

# first cell
import torch
net = torch.nn.Sequential(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters())

# case: the numbers of the model
for epoch in range(4):
    for x, y in rows:
        (net(x) - y).pow(2).mean().backward()
        optimizer.step()
    torch.save(net.half().state_dict(), "half.pt")
    net.float()
# output
for epoch in range(4):
    for x, y in rows:
        (net(x) - y).pow(2).mean().backward()
        optimizer.step()
    with ddp.in_turn():  # nb2ddp: the ranks write one after another
        torch.save(net.half().state_dict(), "half.pt")
    net.float()

# case: no more than a copy of it
import copy
for epoch in range(4):
    for x, y in rows:
        (net(x) - y).pow(2).mean().backward()
        optimizer.step()
    torch.save(copy.deepcopy(net).half().state_dict(), "half.pt")
# output
import copy
for epoch in range(4):
    for x, y in rows:
        (net(x) - y).pow(2).mean().backward()
        optimizer.step()
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            torch.save(copy.deepcopy(net).half().state_dict(), "half.pt")

# case: a function that evaluates, and sets the mode back
def accuracy():
    net.eval()
    right = net(x).sum().item()
    net.train()
    return right
for epoch in range(4):
    for x, y in rows:
        (net(x) - y).pow(2).mean().backward()
        optimizer.step()
    torch.save(accuracy(), "accuracy.pt")
# output
def accuracy():
    net.eval()
    right = net(x).sum().item()
    net.train()
    return right
for epoch in range(4):
    for x, y in rows:
        (net(x) - y).pow(2).mean().backward()
        optimizer.step()
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            torch.save(accuracy(), "accuracy.pt")
