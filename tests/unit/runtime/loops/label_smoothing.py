# same: label smoothing
model = ddp.parallelize(mlp())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y, label_smoothing=0.2, reduction="sum"))
end(model)
