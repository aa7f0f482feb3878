# same: the batch norms stay in evaluation mode while the rest of the model trains
net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
net(torch.randn(32, 5))
ddp.parallelize(net)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(5):
    net.train()
    net[1].eval()
    x, y = torch.randn(8, 5), torch.randint(0, 3, (8,))
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
