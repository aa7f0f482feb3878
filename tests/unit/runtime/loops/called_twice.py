# same: called twice
model = ddp.parallelize(mlp())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y) + model(x * 2).pow(2).mean())
end(model)
