# A widget that shows gradients of what is trained is left alone.

# case: what a trained model looks at
import ipywidgets as widgets
import torch
model = make()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    model(batch).mean().backward()
    optimizer.step()
def show(i=0):
    rows[i].requires_grad_()
    model(rows[i]).sum().backward()
    print(rows[i].grad)
widgets.interact(show, i=(0, 9))
# output
import ipywidgets as widgets
import torch
model = make()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    model(batch).mean().backward()
    optimizer.step()
ddp.check_replicas()
def show(i=0):
    rows[i].requires_grad_()
    model(rows[i]).sum().backward()
    print(rows[i].grad)
widgets.interact(show, i=(0, 9))
