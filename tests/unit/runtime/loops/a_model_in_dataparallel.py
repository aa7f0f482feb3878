# same: a model in DataParallel
model = ddp.parallelize(nn.DataParallel(mlp()))
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
note(names=list(model.state_dict()), inner=type(model.module).__name__)
train(model, batches(x, y), lambda x, y: F.cross_entropy(model.module(x), y))
end(model)
