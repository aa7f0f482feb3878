# same: lbfgs
model, x = ddp.parallelize(mlp().double()), x.double()  # its steps magnify rounding
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
for a, b in batches(x, y)[:3]:
    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(a), b)
        loss.backward()
        return loss
    losses.append(optimizer.step(closure).item())
end(model)
