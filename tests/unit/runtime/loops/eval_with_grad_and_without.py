# same: eval with grad, and without
model = ddp.parallelize(mlp())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
model.eval()
losses.append(F.cross_entropy(model(x), y).item())
with torch.no_grad():
    losses.append(F.cross_entropy(model(x), y).item())
model.train()
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
