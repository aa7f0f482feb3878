# same: three calls for one loss
net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4, bias=False))
ddp.parallelize(net)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
x = torch.randn(3, 100, 6)
for i in range(0, 100, 10):
    a, p, n = (net(x[k, i : i + 10]) for k in range(3))
    loss = F.triplet_margin_loss(a, p, n)
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
