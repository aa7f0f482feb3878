# same: ignored labels
model = ddp.parallelize(mlp())
y[::3] = -100
y[:2] = -100
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
