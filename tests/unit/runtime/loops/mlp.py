# same: mlp
model = ddp.parallelize(mlp())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
