# same: the loss is of a second derivative alone, and the outputs themselves are not in it
def of(f, z):
    return torch.autograd.grad(f, z, torch.ones_like(f), create_graph=True)[0]
net = ddp.parallelize(nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 1)))
opt = torch.optim.Adam(net.parameters(), 3e-3)
for step in range(9):
    z = torch.rand(32, 2, requires_grad=True)
    second = of(of(net(z), z)[:, :1], z)[:, :1]
    loss = (second - 1).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
