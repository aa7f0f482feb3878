# same: derivatives of a network's outputs, some of them derived again, as one that fits an equation asks for
def of(f, z):
    return torch.autograd.grad(f, z, torch.ones_like(f), create_graph=True)[0]
net = ddp.parallelize(nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 1)))
opt = torch.optim.Adam(net.parameters(), 3e-3)
for step in range(9):
    z = torch.rand(32, 2, requires_grad=True)
    u = net(z)
    first, square = of(u, z), of(u ** 2, z)[:, :1]
    second = of(first[:, :1], z)[:, :1]
    third, of_square = of(second, z)[:, :1], of(square, z)[:, :1]
    loss = (first[:, 1:] - second + u * third).square().mean() + 0.1 * (of_square - 1).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
log(torch.autograd.functional.hvp(lambda x: net(x).square().sum(), torch.ones(6, 2), torch.ones(6, 2))[1].sum())
end(net)
