# same: fewer rows than ranks
model = ddp.parallelize(mlp())
train(model, batches(x[:9], y[:9], size=4), lambda x, y: F.cross_entropy(model(x), y))
end(model)
