# same: torch.compile
net = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 3))
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
ddp.parallelize(net)
net = torch.compile(net, backend="eager")
x, y = torch.randn(60, 5), torch.randint(0, 3, (60,))
for i in range(0, 60, 6):
    loss = F.cross_entropy(net(x[i : i + 6]), y[i : i + 6])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
