# whole: the notebook's hook keeps activations
seen = {}
net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
net[1].register_forward_hook(lambda module, given, out: seen.update(hidden=out))
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(60, 5), torch.randint(0, 3, (60,))
for i in range(0, 60, 6):
    loss = F.cross_entropy(net(x[i : i + 6]), y[i : i + 6]) + seen["hidden"].mean(0).pow(2).sum()
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
