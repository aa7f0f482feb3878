# said: a batch norm is put into the model, one without weights
net = nn.Sequential(nn.Linear(5, 8), nn.Identity(), nn.Linear(8, 3))
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = rows(60)
for step, (x, y) in enumerate(batches(x, y)):
    if step == 8:
        net[1] = nn.BatchNorm1d(8, affine=False)
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(loss.item())
end(net)
