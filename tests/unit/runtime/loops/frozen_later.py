# same: frozen later
model = ddp.parallelize(mlp())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
model[0].requires_grad_(False)
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
