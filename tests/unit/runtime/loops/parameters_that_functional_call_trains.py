# same: parameters that lie outside of the model, which functional_call() puts in, and then the model's own
from torch.func import functional_call
net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))
ddp.parallelize_trained()
outside = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
optimizer = torch.optim.Adam(outside.values(), 1e-2)
for a, b in batches(x, y):
    loss = F.cross_entropy(functional_call(net, outside, (a,)), b)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    log(loss)
net.load_state_dict(outside)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for a, b in batches(x, y):
    loss = F.cross_entropy(net(a), b)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    log(loss)
end(net)
