# same: a penalty alone
model = ddp.parallelize(mlp(classes=1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for part, _ in batches(x, y):
    optimizer.zero_grad()
    real = model(part).mean()
    real.backward()
    moved = (part * 1.5).requires_grad_(True)
    slope, = torch.autograd.grad(model(moved).sum(), moved, create_graph=True)
    penalty = ((slope.norm(2, 1) - 1) ** 2).mean()
    penalty.backward()
    losses.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
    optimizer.step()
end(model)
