# same: two calls before a backward() for each
model = ddp.parallelize(mlp())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (a, b), (c, d) in zip(batches(x[:12], y[:12]), batches(x[10:], y[10:])):
    optimizer.zero_grad()
    one, two = F.cross_entropy(model(a), b), F.cross_entropy(model(c), d)
    one.backward()
    two.backward()
    optimizer.step()
    losses.append(one.item() + two.item())
end(model)
