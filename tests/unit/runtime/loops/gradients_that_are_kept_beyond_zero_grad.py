# same: gradients that are kept beyond zero_grad()
model = ddp.parallelize(mlp())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for a, b in batches(x, y):
    kept = []
    for loss_of in (lambda out: F.cross_entropy(out, b), lambda out: out.pow(2).mean()):
        optimizer.zero_grad()
        loss = loss_of(model(a))
        loss.backward()
        kept.append([p.grad for p in model.parameters()])
    for p, one, other in zip(model.parameters(), *kept):
        p.grad = one - (one * other).sum().clamp(max=0) / (other * other).sum() * other
    optimizer.step()
    losses.append(loss.item())
end(model)
