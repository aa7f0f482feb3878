# same: two calls before a backward() for each, the second of fewer rows than ranks
model = ddp.parallelize(mlp())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for a, c in [(x[16:20], x[20:21])] * 4:
    optimizer.zero_grad()
    one, two = model(a).pow(2).mean(), model(c).exp().mean()
    two.backward()
    one.backward()
    optimizer.step()
    losses.append(one.item() + two.item())
end(model)
