# same: unfrozen later
model = mlp()
model[0].requires_grad_(False)
model = ddp.parallelize(model)
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
model[0].requires_grad_(True)
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
