# whole: batch norm, and a backward() for each loss
model = ddp.parallelize(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for a, b in batches(x[:20], y[:20]):
    optimizer.zero_grad()
    out = model(a)
    F.cross_entropy(out, b).backward(retain_graph=True)
    out.pow(2).mean().backward()
    optimizer.step()
    losses.append(out.sum().item())
end(model)
